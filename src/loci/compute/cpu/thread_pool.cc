#include "loci/compute/cpu/thread_pool.h"

#include <pthread.h>

namespace loci {
namespace {

constexpr int kSpins = 4000;  // some 20 to 50 microseconds

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Until `value` is no longer `old`.
void wait_for_change(std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

void Barrier::wait() {
  if (threads_ == 1) return;
  const std::uint32_t round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_acq_rel);
    round_.notify_all();
    return;
  }
  wait_for_change(round_, round);
}

ThreadPool::ThreadPool(std::uint32_t threads) : threads_(threads), barrier_(threads) {
  for (std::uint32_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  round_.fetch_add(1, std::memory_order_acq_rel);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const std::function<void(std::uint32_t)>& body) {
  body_ = &body;
  round_.fetch_add(1, std::memory_order_acq_rel);
  round_.notify_all();
  body(0);
  barrier_.wait();
}

void ThreadPool::work(std::uint32_t index) {
  pthread_setname_np(pthread_self(), "loci-kernels");
  for (std::uint32_t round = 0;; ++round) {
    wait_for_change(round_, round);
    if (stopping_) return;
    (*body_)(index);
    barrier_.wait();
  }
}

}  // namespace loci
