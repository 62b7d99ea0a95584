// SPDX-License-Identifier: Apache-2.0
// The compute threads. They all run one job at a time, in phases that are separated by barriers.
//
// A waiting thread spins briefly, then sleeps: if another process has taken the core of the thread that it
// waits for, spinning could keep that thread from running for a whole time slice. Between jobs the threads
// sleep.
//
// One thread at a time may call run(); it takes part as thread 0. Only the job's threads call claim() and
// barrier().
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
  // `threads` > 0, the caller of run() included. Throws std::system_error if the system has no more threads.
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

  // Called inside a job. Every thread passes the same barriers; writes before a barrier are seen after it.
  void barrier(std::uint32_t thread);

  // Called inside a job. Takes a part of [0, total); false when nothing is left. Between two barriers every
  // thread calls it with the same total until it gets false. Parts get smaller towards the end, so that
  // nobody waits long for a slow thread. Which thread gets which part varies and must not matter.
  bool claim(std::uint32_t thread, std::uint32_t total, WorkRange& range);

 private:
  using Function = void (*)(const void*, std::uint32_t);
  // Fields that only one thread writes, on a cache line of their own.
  struct alignas(64) Local {
    bool claimed = false;  // it has taken its fixed share of this phase
  };

  void run_erased(Function function, const void* context);
  void work(std::uint32_t thread);
  void stop();
  void wait_for_change(const std::atomic<std::uint32_t>& word, std::uint32_t old) const;

  const std::uint32_t size_;
  const std::uint32_t spins_;
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> phase_{0};
  alignas(64) std::atomic<std::uint32_t> next_{0};  // of the work that is divided in this phase
  alignas(64) std::atomic<std::uint32_t> job_{0};   // counts jobs
  Function function_ = nullptr;
  const void* context_ = nullptr;
  bool stopping_ = false;
  std::vector<Local> local_;
  std::vector<std::thread> threads_;
};

// Cores that this process may use, within the processor time that its control groups allow; threads of one
// core count once. At least one.
std::uint32_t physical_core_count();

}  // namespace loci::cpu
