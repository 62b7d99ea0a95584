// SPDX-License-Identifier: Apache-2.0
// Makes the system run out of threads. The kernel lets root start any number of them, so this limits the
// process's address space instead: there is room for only so many stacks.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

namespace loci {

// While it lives, the process can begin `threads` more threads (fewer on a machine without that much address
// space). Not for threads that map much memory themselves.
class ThreadLimit {
 public:
  explicit ThreadLimit(std::size_t threads) {
    EXPECT_EQ(pthread_getattr_default_np(&attributes_), 0);
    pthread_attr_t large;
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, kStackBytes);
    EXPECT_EQ(pthread_setattr_default_np(&large), 0);
    pthread_attr_destroy(&large);
    EXPECT_EQ(getrlimit(RLIMIT_AS, &limit_), 0);
    rlimit few = limit_;
    few.rlim_cur = mapped_bytes() + threads * kStackBytes + kStackBytes * 3 / 4;
    EXPECT_EQ(setrlimit(RLIMIT_AS, &few), 0);
  }
  ~ThreadLimit() {
    setrlimit(RLIMIT_AS, &limit_);
    pthread_setattr_default_np(&attributes_);
    pthread_attr_destroy(&attributes_);
  }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  // What else a thread takes, as an arena of the allocator, is little beside it.
  static constexpr std::uint64_t kStackBytes = std::uint64_t{1} << 30;

  static std::uint64_t mapped_bytes() {
    std::ifstream status("/proc/self/status");
    std::string word;
    std::uint64_t kib = 0;
    while (status >> word && word != "VmSize:") {
    }
    status >> kib;
    EXPECT_GT(kib, 0u);
    return kib << 10;
  }

  pthread_attr_t attributes_;
  rlimit limit_{};
};

}  // namespace loci
