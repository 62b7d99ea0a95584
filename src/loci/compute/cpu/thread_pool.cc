// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/thread_pool.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <string>

#include "loci/base/check.h"
#include "loci/base/control_group.h"
#include "loci/compute/cpu/numa.h"
#include "loci/compute/wake.h"

namespace loci::cpu {

namespace {

// About 50 microseconds: longer than phases differ, shorter than a time slice.
constexpr std::uint32_t kSpins = 2000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(std::uint32_t threads)
    : size_(threads), spins_(threads > physical_core_count() ? 20 : kSpins), local_(threads) {
  LOCI_CHECK(threads > 0, "a pool needs a thread");
  try {
    for (std::uint32_t i = 1; i < threads; ++i) {
      threads_.emplace_back([this, i] { work(i); });
      pthread_setname_np(threads_.back().native_handle(), fmt::format("compute-{}", i).c_str());
    }
  } catch (...) {
    stop();  // no destructor runs, and threads that nobody joins would end the process
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_ = true;
  job_.fetch_add(1, std::memory_order_release);
  wake_all(job_);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::wait_for_change(const std::atomic<std::uint32_t>& word, std::uint32_t old) const {
  for (std::uint32_t i = 0; i < spins_; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    pause();
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

void ThreadPool::work(std::uint32_t thread) {
  keep_to_node(thread, size_);
  std::uint32_t seen = 0;
  while (true) {
    wait_for_change(job_, seen);
    ++seen;
    if (stopping_) return;
    function_(context_, thread);
    barrier(thread);
  }
}

void ThreadPool::run_erased(Function function, const void* context) {
  function_ = function;
  context_ = context;
  job_.fetch_add(1, std::memory_order_release);
  wake_all(job_);
  function(context, 0);
  barrier(0);
}

void ThreadPool::barrier(std::uint32_t thread) {
  local_[thread].claimed = false;
  const std::uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    arrived_.store(0, std::memory_order_relaxed);
    next_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    wake_all(phase_);
  } else {
    wait_for_change(phase_, phase);
  }
}

bool ThreadPool::claim(std::uint32_t thread, std::uint32_t total, WorkRange& range) {
  // Three quarters are shared out beforehand: taking a share costs the other cores' cache line.
  const auto fixed = static_cast<std::uint32_t>(std::uint64_t{total} * 3 / (4 * size_));
  if (!local_[thread].claimed) {
    local_[thread].claimed = true;
    if (fixed > 0) {
      range = {thread * fixed, (thread + 1) * fixed};
      return true;
    }
  }
  const std::uint32_t rest = total - size_ * fixed;
  std::uint32_t taken = next_.load(std::memory_order_relaxed);
  while (taken < rest) {
    const std::uint32_t share = std::max(1u, (rest - taken) / (2 * size_));
    if (next_.compare_exchange_weak(taken, taken + share, std::memory_order_relaxed)) {
      range = {size_ * fixed + taken, size_ * fixed + taken + share};
      return true;
    }
  }
  return false;
}

std::uint32_t physical_core_count() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return std::max(1u, std::thread::hardware_concurrency());
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = fmt::format("cpu{}", cpu);
    cores.insert(siblings);
  }
  // A thread more than there is time for is stopped in the middle of a phase, and all others wait for it.
  const double limit = processor_limit("").value_or(static_cast<double>(cores.size()));
  return static_cast<std::uint32_t>(
      std::max(1.0, std::min(std::floor(limit), static_cast<double>(cores.size()))));
}

}  // namespace loci::cpu
