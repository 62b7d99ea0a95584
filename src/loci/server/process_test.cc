// SPDX-License-Identifier: Apache-2.0
#include "loci/server/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "loci/base/thread_limit_testing.h"

namespace loci {
namespace {

// Standard error is from now on a pipe that nobody reads, and that is full.
void fill_standard_error() {
  int ends[2];
  if (pipe2(ends, O_NONBLOCK) != 0 || dup2(ends[1], STDERR_FILENO) < 0) std::_Exit(99);
  const std::array<char, 4096> filler{};
  while (write(ends[1], filler.data(), filler.size()) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);  // a write waits
}

TEST(Process, ItsLogEndsWithoutAThreadLeft) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    make_logger(LogFormat::kText, "info")->info("the last words");
    const ThreadLimit limit(0);
    end_log(3);
    std::_Exit(4);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(4), "the last words");
}

TEST(Process, ALogThatNobodyReadsIsNotWaitedForWithoutAThreadLeft) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    const auto log = make_logger(LogFormat::kText, "info");
    fill_standard_error();
    log->info("the last words");
    const ThreadLimit limit(0);
    end_log(3);
    std::_Exit(4);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace loci
