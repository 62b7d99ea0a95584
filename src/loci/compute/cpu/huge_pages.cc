// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/huge_pages.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

namespace loci::cpu {
namespace {

#ifndef MADV_COLLAPSE
constexpr int MADV_COLLAPSE = 25;  // Linux 6.1
#endif

constexpr auto kPause = std::chrono::seconds(1);
constexpr std::uint64_t kSmallPage = 4096;

}  // namespace

HugePages::HugePages(std::uint8_t* memory, std::uint64_t bytes) {
  const auto place = reinterpret_cast<std::uintptr_t>(memory);
  before_ = (kHugePageBytes - place % kHugePageBytes) % kHugePageBytes;
  if (before_ >= bytes) return;
  first_ = memory + before_;
  units_ = (bytes - before_) / kHugePageBytes;
  is_split_ = std::make_unique<std::atomic<bool>[]>(units_);
}

void HugePages::given_back(std::uint64_t begin, std::uint64_t bytes) {
  if (bytes == 0 || begin + bytes <= before_) return;
  const std::uint64_t last = (begin + bytes - 1 - before_) / kHugePageBytes;
  const std::uint64_t first = begin < before_ ? 0 : (begin - before_) / kHugePageBytes;
  for (std::uint64_t unit = first; unit < std::min(last + 1, units_); ++unit) {
    if (!is_split_[unit].exchange(true)) ++split_;
  }
}

// Every page of it has memory: joining it takes no more than it has.
bool HugePages::in_use(std::uint8_t* unit) const {
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::array<unsigned char, kHugePageBytes / kSmallPage> there{};
  if (mincore(unit, kHugePageBytes, there.data()) != 0) return false;
  return std::all_of(there.begin(), there.begin() + static_cast<std::ptrdiff_t>(kHugePageBytes / page),
                     [](unsigned char status) { return (status & 1) != 0; });
}

void HugePages::forget(std::uint64_t unit) {
  if (is_split_[unit].exchange(false)) --split_;
}

std::uint64_t HugePages::join_split() {
  std::uint64_t joined = 0;
  for (std::uint64_t unit = 0; unit < units_ && split() > 0; ++unit) {
    std::uint8_t* const memory = first_ + unit * kHugePageBytes;
    if (!is_split_[unit].load() || !in_use(memory)) continue;
    // (First: what is given back meanwhile makes it split again.)
    forget(unit);
    if (madvise(memory, kHugePageBytes, MADV_COLLAPSE) == 0) {
      ++joined;
    } else if (errno != EINVAL) {  // the system cannot do it
      given_back(before_ + unit * kHugePageBytes, kHugePageBytes);
      break;
    }
  }
  return joined;
}

PageJoiner::~PageJoiner() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PageJoiner::start() {
  std::call_once(started_, [this] {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "loci-pages");
      run();
    });
  });
}

void PageJoiner::run() {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (ends_.wait_for(lock, kPause, [this]() REQUIRES(mutex_) { return ended_; })) return;
    }
    join_();
  }
}

}  // namespace loci::cpu
