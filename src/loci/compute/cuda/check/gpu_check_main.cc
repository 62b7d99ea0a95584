// SPDX-License-Identifier: Apache-2.0
// gpu-check [--limit-s N] [--here] [--gtest_...]: runs every test of kernels and of the CUDA backend on
// this machine's first GPU, and ends with "N passed, N failed".
//
// Each suite of tests runs in a process of its own: a kernel that reads what it may not spoils the GPU for
// its process alone, and a crash or a hang (--limit-s, 60 for a test) costs one suite. A test that such an
// end kept from being run counts as failed. With --here all run in this process, as tools that watch one need
// it. Tests that lose the device on purpose come last.
//
// Exit status: 0 all passed, 1 some failed or none ran, 2 there is no GPU to run them on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "loci/compute/cuda/runtime.h"

extern char** environ;

namespace loci::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kReport = "--report-to=";  // what a suite's process is told: the pipe's number

// In a suite's process: tells the pipe how each test ended.
class Reporter : public testing::EmptyTestEventListener {
 public:
  explicit Reporter(int pipe) : pipe_(pipe) {}
  void OnTestEnd(const testing::TestInfo& test) override {
    const char* end = test.result()->Skipped() ? "skipped" : test.result()->Passed() ? "passed" : "failed";
    dprintf(pipe_, "%s %s\n", end, test.name());
  }

 private:
  int pipe_;
};

struct Counts {
  std::uint32_t passed = 0, failed = 0, skipped = 0;
};

struct Settings {
  std::uint32_t limit_s = 60;          // for a test
  std::string filter;                  // --gtest_filter=..., or empty
  std::vector<std::string> passed_on;  // other --gtest_... for the suites
};

struct Suite {
  std::string name;
  std::vector<std::string> tests;
};

// How a suite's process ended.
struct Ended {
  std::string report;
  std::string why;  // empty: by itself
};

// The report up to the pipe's end; where nothing comes for longer than the limit the process is killed.
Ended wait_for(pid_t process, int pipe, std::uint32_t limit_s) {
  Ended ended;
  Clock::time_point until = Clock::now() + std::chrono::seconds(limit_s);
  for (bool open = true; open;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd waiting{.fd = pipe, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) == 0) {
      kill(process, SIGKILL);
      ended.why = "still running after " + std::to_string(limit_s) + " s";
      break;
    }
    char bytes[4096];
    const ssize_t count = read(pipe, bytes, sizeof bytes);
    if (count > 0) {
      ended.report.append(bytes, static_cast<std::size_t>(count));
      until = Clock::now() + std::chrono::seconds(limit_s);
    }
    open = count > 0 || (count < 0 && errno == EINTR);
  }
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (ended.why.empty() && WIFSIGNALED(status)) ended.why = strsignal(WTERMSIG(status));
  return ended;
}

// This program again, told `words`: a suite's process reports to the pipe that kReport names, a listing is
// what it writes to standard output.
enum class Purpose : std::uint8_t { kSuite, kListing };
Ended run_self(Purpose purpose, std::vector<std::string> words, std::uint32_t limit_s) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return {.report = {}, .why = "no pipe"};
  fcntl(pipe_ends[0], F_SETFD, FD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (purpose == Purpose::kListing) posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
  if (purpose == Purpose::kSuite) words.push_back(kReport + std::to_string(pipe_ends[1]));
  words.insert(words.begin(), "gpu-check");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t process = 0;
  const int error = posix_spawn(&process, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  Ended ended = error == 0 ? wait_for(process, pipe_ends[0], limit_s)
                           : Ended{.report = {}, .why = std::strerror(error)};
  close(pipe_ends[0]);
  return ended;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// GoogleTest applies its filter only when it runs, so it is asked for a list: "Suite.", then "  Test" each.
std::vector<Suite> list_suites(const Settings& settings) {
  std::vector<std::string> words = {"--gtest_list_tests"};
  if (!settings.filter.empty()) words.push_back(settings.filter);
  std::vector<Suite> suites;
  for (std::string line : lines_of(run_self(Purpose::kListing, words, settings.limit_s).report)) {
    line.resize(std::min(line.find("  #"), line.size()));  // parameters
    if (line.starts_with("  ")) {
      if (!suites.empty()) suites.back().tests.push_back(line.substr(2));
    } else if (line.ends_with(".")) {
      suites.push_back({.name = line.substr(0, line.size() - 1), .tests = {}});
    }
  }
  std::stable_partition(suites.begin(), suites.end(), [](const Suite& suite) {
    return suite.name.find("LostDevice") == std::string::npos;
  });
  return suites;
}

Ended run_suite(const Suite& suite, const Settings& settings) {
  std::vector<std::string> words = settings.passed_on;
  std::string filter = "--gtest_filter=";
  for (const std::string& test : suite.tests) filter += suite.name + "." + test + ":";
  words.push_back(filter);
  words.emplace_back("--gtest_brief=1");
  return run_self(Purpose::kSuite, std::move(words), settings.limit_s);
}

// Counts a suite's tests and names those that did not pass.
Counts judge(const Suite& suite, const Ended& ended) {
  std::map<std::string, std::string> ends;  // by test
  for (const std::string& line : lines_of(ended.report)) {
    const std::size_t space = line.find(' ');
    if (space != std::string::npos) ends[line.substr(space + 1)] = line.substr(0, space);
  }
  Counts counts;
  for (const std::string& test : suite.tests) {
    const auto found = ends.find(test);
    const std::string end = found == ends.end() ? "not ended" : found->second;
    counts.passed += end == "passed";
    counts.skipped += end == "skipped";
    counts.failed += end == "failed" || end == "not ended";
    if (end == "passed") continue;
    const bool unknown = end == "not ended" && !ended.why.empty();
    std::printf("  %s: %s.%s%s\n", end.c_str(), suite.name.c_str(), test.c_str(),
                unknown ? (" (" + ended.why + ")").c_str() : "");
  }
  return counts;
}

int run_all(const Settings& settings) {
  Counts all;
  for (const Suite& suite : list_suites(settings)) {
    const Clock::time_point begin = Clock::now();
    const Counts counts = judge(suite, run_suite(suite, settings));
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::printf("%s: %u passed, %u failed in %.1f s\n", suite.name.c_str(), counts.passed, counts.failed,
                seconds);
    std::fflush(stdout);
    all.passed += counts.passed;
    all.failed += counts.failed;
    all.skipped += counts.skipped;
  }
  if (all.skipped > 0) std::printf("%u skipped, as said above\n", all.skipped);
  std::printf("%u passed, %u failed\n", all.passed, all.failed);
  return all.failed == 0 && all.passed > 0 ? 0 : 1;
}

// Says what the tests run on. Exit status 2 without a GPU; nothing is kept of the device.
int look_for_gpu() {
  const Result<std::unique_ptr<Device>> device = Device::open(0);
  if (!device.ok()) {
    std::fprintf(stderr, "gpu-check: %s\n", device.status().message().c_str());
    return 2;
  }
  const DeviceProperties& found = (*device)->properties();
  std::printf("%s: compute capability %u.%u, %u multiprocessors, %.1f GB\n", found.name.c_str(),
              found.capability / 10, found.capability % 10, found.multiprocessors,
              static_cast<double>(found.memory_bytes) / 1e9);
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main_of_check(int count, char** arguments) {
  Settings settings;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    if (word.starts_with("--gtest_filter")) {
      settings.filter = word;
    } else if (word.starts_with("--gtest_")) {
      settings.passed_on.push_back(word);
    }
  }
  testing::InitGoogleTest(&count, arguments);
  int report_to = -1;
  bool here = false;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    if (word.starts_with(kReport)) {
      report_to = std::atoi(word.c_str() + std::strlen(kReport));
    } else if (word == "--here") {
      here = true;
    } else if (word == "--limit-s" && i + 1 < count) {
      settings.limit_s = static_cast<std::uint32_t>(std::atoi(arguments[++i]));
    } else {
      std::fprintf(
          stderr,
          "usage: gpu-check [--limit-s N] [--here] [--gtest_filter=SUITE.TEST] [--gtest_list_tests]\n");
      return 1;
    }
  }
  if (report_to >= 0) {
    fcntl(report_to, F_SETFD, FD_CLOEXEC);
    testing::UnitTest::GetInstance()->listeners().Append(new Reporter(report_to));
    return RUN_ALL_TESTS();
  }
  if (here || testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  const int status = look_for_gpu();
  return status == 0 ? run_all(settings) : status;
}

}  // namespace loci::cuda

int main(int count, char** arguments) { return loci::cuda::main_of_check(count, arguments); }
