// The compute threads. They run one function together (each with its index) and meet at barriers inside
// it: a pass is one such function. Between passes they sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace loci {

// Spins briefly, then sleeps: a spinning barrier collapses when another process takes a core.
class Barrier {
 public:
  explicit Barrier(std::uint32_t threads) : threads_(threads) {}
  void wait();

 private:
  const std::uint32_t threads_;
  std::atomic<std::uint32_t> arrived_{0};
  std::atomic<std::uint32_t> round_{0};
};

class ThreadPool {
 public:
  explicit ThreadPool(std::uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::uint32_t threads() const { return threads_; }
  // Runs body(0) on the caller's thread and body(1), ... on the others; returns when all have ended.
  void run(const std::function<void(std::uint32_t)>& body);
  // For use inside body, by all threads.
  void barrier() { barrier_.wait(); }

 private:
  void work(std::uint32_t index);

  const std::uint32_t threads_;
  Barrier barrier_;
  std::atomic<std::uint32_t> round_{0};
  const std::function<void(std::uint32_t)>* body_ = nullptr;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace loci
