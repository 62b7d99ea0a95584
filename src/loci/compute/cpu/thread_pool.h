// SPDX-License-Identifier: Apache-2.0
// The compute threads: one job at a time runs on all of them, in phases that a barrier separates.
//
// Waiting spins briefly, then sleeps: a thread whose core another process has taken would otherwise
// hold up a spinning partner for a whole time slice. Between jobs the threads sleep.
//
// run() may be called by one thread at a time, which takes part as thread 0. claim() and barrier() are
// for the job's threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace loci::cpu {

struct WorkRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

class ThreadPool {
 public:
  // `threads` > 0, the caller of run() included.
  explicit ThreadPool(std::uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::uint32_t size() const { return size_; }

  // Runs job(thread) on each thread, 0 <= thread < size(); returns when all have ended.
  template <class Job>
  void run(const Job& job) {
    run_erased([](const void* context, std::uint32_t thread) { (*static_cast<const Job*>(context))(thread); },
               &job);
  }

  // Runs task(i), 0 <= i < count, each once, on all threads in any order; returns when all have ended. A
  // single task is run by the caller: waking a thread would take longer.
  template <class Task>
  void run_each(std::uint32_t count, const Task& task) {
    if (count < 2 || size_ == 1) {
      for (std::uint32_t i = 0; i < count; ++i) task(i);
      return;
    }
    run([&](std::uint32_t thread) {
      WorkRange range;
      while (claim(thread, count, range)) {
        for (std::uint32_t i = range.begin; i < range.end; ++i) task(i);
      }
    });
  }

  // Inside a job. Every thread passes the same barriers; what was written before one is seen after it.
  void barrier(std::uint32_t thread);

  // Inside a job. Takes a part of [0, total); false when nothing is left. Every thread asks with the
  // same total between two barriers, until it gets false. Shares shrink towards the end, so that a slow
  // thread holds up nobody; which thread gets what varies and must not matter.
  bool claim(std::uint32_t thread, std::uint32_t total, WorkRange& range);

 private:
  using Function = void (*)(const void*, std::uint32_t);
  // What one thread alone writes, on its own cache line.
  struct alignas(64) Local {
    bool claimed = false;  // its fixed share of this phase
  };

  void run_erased(Function function, const void* context);
  void work(std::uint32_t thread);
  void wait_for_change(const std::atomic<std::uint32_t>& word, std::uint32_t old) const;

  const std::uint32_t size_;
  const std::uint32_t spins_;
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> phase_{0};
  alignas(64) std::atomic<std::uint32_t> next_{0};  // of what is shared out in this phase
  alignas(64) std::atomic<std::uint32_t> job_{0};   // counts jobs
  Function function_ = nullptr;
  const void* context_ = nullptr;
  bool stopping_ = false;
  std::vector<Local> local_;
  std::vector<std::thread> threads_;
};

// Cores that this process may use, within the time that its control groups give it; threads of one core count
// once. At least one.
std::uint32_t physical_core_count();

}  // namespace loci::cpu
