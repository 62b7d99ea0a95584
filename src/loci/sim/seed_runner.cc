// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/seed_runner.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/base/random.h"

namespace loci {
namespace {

constexpr std::array kDeaths = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr std::size_t kThreadsMax = 256;
constexpr std::uint64_t kIdle = 0;

// What handlers of signals read: no locks, no memory of the heap.
struct Running {
  char command[200] = {};
  std::array<std::atomic<std::uint64_t>, kThreadsMax> seeds{};  // by thread: kIdle, or the seed plus one
};
Running running;
thread_local std::size_t my_slot = kThreadsMax;

void say(std::uint64_t seed, const char* what) {
  char text[320];
  const int size = std::snprintf(text, sizeof text, "seed %llu %s; to repeat it: %s%llu\n",
                                 static_cast<unsigned long long>(seed), what, running.command,
                                 static_cast<unsigned long long>(seed));
  if (size > 0) {
    [[maybe_unused]] const auto written =
        ::write(2, text, std::min(static_cast<std::size_t>(size), sizeof text - 1));
  }
}

// The thread that broke is the one that is interrupted. The signal is raised again when this returns.
void on_death(int signal) {
  std::signal(signal, SIG_DFL);
  if (my_slot < kThreadsMax && running.seeds[my_slot] != kIdle) say(running.seeds[my_slot] - 1, "failed");
  ::raise(signal);
}

// Somebody has waited long enough.
void on_interrupt(int signal) {
  std::signal(signal, SIG_DFL);
  for (const std::atomic<std::uint64_t>& seed : running.seeds) {
    if (seed != kIdle) say(seed - 1, "has not ended");
  }
  ::raise(signal);
}

class Runner {
 public:
  Runner(SeedRange seeds, const SeedRun& run, const SeedListener& listener)
      : seeds_(seeds), run_(run), listener_(listener) {}

  void work(std::size_t slot) EXCLUDES(mutex_) {
    my_slot = slot;
    for (std::uint64_t index = next_++; index < seeds_.count; index = next_++) {
      const std::uint64_t seed = seeds_.first + index;
      running.seeds[slot] = seed + 1;
      const std::uint64_t digest = mix64(mix64(seed) ^ run_(seed));
      running.seeds[slot] = kIdle;
      const MutexLock lock(mutex_);
      digest_ += digest;
      listener_(++done_);
    }
    my_slot = kThreadsMax;
  }

  std::uint64_t digest() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return digest_;
  }

 private:
  const SeedRange seeds_;
  const SeedRun& run_;
  const SeedListener& listener_;
  std::atomic<std::uint64_t> next_{0};
  Mutex mutex_;
  std::uint64_t digest_ GUARDED_BY(mutex_) = 0;
  std::uint64_t done_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::uint64_t run_seeds(SeedRange seeds, unsigned threads, const std::string& command, const SeedRun& run,
                        const SeedListener& listener) {
  std::snprintf(running.command, sizeof running.command, "%s", command.c_str());
  std::array<void (*)(int), kDeaths.size()> previous{};
  for (std::size_t i = 0; i < kDeaths.size(); ++i) previous[i] = std::signal(kDeaths[i], on_death);
  const auto interrupt = std::signal(SIGINT, on_interrupt);
  Runner runner(seeds, run, listener);
  {
    std::vector<std::jthread> workers;
    for (std::size_t slot = 0; slot < std::clamp<std::size_t>(threads, 1, kThreadsMax); ++slot)
      workers.emplace_back([&runner, slot] { runner.work(slot); });
  }
  for (std::size_t i = 0; i < kDeaths.size(); ++i) std::signal(kDeaths[i], previous[i]);
  std::signal(SIGINT, interrupt);
  return runner.digest();
}

}  // namespace loci
