// SPDX-License-Identifier: Apache-2.0
// gpu-check's main() over tests that end in every way (gpu_check_sample.cc), on the simulated device.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

struct Ran {
  int status = 0;
  std::string said;
  bool says(const std::string& text) const { return said.find(text) != std::string::npos; }
};

Ran run(const std::string& arguments) {
  const char* const folder = std::getenv("LOCI_BINARY_DIR");
  const std::string command =
      std::string(folder == nullptr ? "." : folder) + "/gpu_check_sample " + arguments + " 2>&1";
  Ran ran;
  FILE* const pipe = popen(command.c_str(), "r");
  std::array<char, 4096> bytes{};
  for (std::size_t count = 0; (count = fread(bytes.data(), 1, bytes.size(), pipe)) > 0;) {
    ran.said.append(bytes.data(), count);
  }
  const int status = pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

TEST(GpuCheck, CountsEveryEnd) {
  const Ran ran = run("--limit-s 2");
  EXPECT_EQ(ran.status, 1) << ran.said;
  EXPECT_TRUE(ran.says("Good: 2 passed, 0 failed")) << ran.said;
  EXPECT_TRUE(ran.says("  failed: Bad.Fails\nBad: 1 passed, 1 failed"));
  EXPECT_TRUE(ran.says("  skipped: Skipping.Skips\nSkipping: 0 passed, 0 failed"));
  EXPECT_TRUE(
      ran.says("  not ended: Crashing.Crashes (Aborted)\n  not ended: Crashing.IsNeverReached (Aborted)\n"
               "Crashing: 1 passed, 2 failed"));
  EXPECT_TRUE(ran.says("  not ended: Hanging.Hangs (still running after 2 s)"));
  EXPECT_TRUE(ran.says("  failed: Some/Parameters.AreSmall/2\nSome/Parameters: 2 passed, 1 failed"));
  EXPECT_TRUE(ran.said.ends_with("1 skipped, as said above\n6 passed, 5 failed\n")) << ran.said;
}

TEST(GpuCheck, ObeysAFilter) {
  const Ran ran = run("--gtest_filter='Good.*:Bad.Passes'");
  EXPECT_EQ(ran.status, 0) << ran.said;
  EXPECT_TRUE(ran.said.ends_with("\n3 passed, 0 failed\n")) << ran.said;
  EXPECT_FALSE(ran.says("Crashing"));
}

TEST(GpuCheck, NothingRunIsNoSuccess) {
  const Ran ran = run("--gtest_filter=No.*");
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(ran.said.ends_with("0 passed, 0 failed\n")) << ran.said;
}

TEST(GpuCheck, RefusesWhatItDoesNotKnow) {
  const Ran ran = run("--frobnicate");
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(ran.says("usage:"));
}

}  // namespace
