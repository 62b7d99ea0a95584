// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/huge_pages.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

namespace loci::cpu {
namespace {

#ifndef MADV_COLLAPSE
constexpr int MADV_COLLAPSE = 25;  // Linux 6.1
#endif

constexpr auto kPause = std::chrono::seconds(1);
constexpr std::uint64_t kSmallPage = 4096;
// In one round: an end waits for half a second at most, and passes share the processors.
constexpr std::uint64_t kUnitsAtOnce = 1024;

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
  std::array<unsigned char, kHugePageBytes / kSmallPage> there{};
  if (mincore(unit, kHugePageBytes, there.data()) != 0) return false;
  return std::all_of(there.begin(),
                     there.begin() + static_cast<std::ptrdiff_t>(kHugePageBytes / page_bytes()),
                     [](unsigned char status) { return (status & 1) != 0; });
}

void HugePages::forget(std::uint64_t unit) {
  if (is_split_[unit].exchange(false)) --split_;
}

std::uint64_t HugePages::join_split() {
  std::uint64_t joined = 0, looked_at = 0;
  for (std::uint64_t i = 0; i < units_ && split() > 0 && looked_at < kUnitsAtOnce; ++i) {
    const std::uint64_t unit = std::exchange(next_, next_ + 1 == units_ ? 0 : next_ + 1);
    if (!is_split_[unit].load()) continue;
    ++looked_at;
    std::uint8_t* const memory = first_ + unit * kHugePageBytes;
    if (!in_use(memory)) continue;
    // (First: what is given back meanwhile makes it split again.)
    forget(unit);
    if (madvise(memory, kHugePageBytes, MADV_COLLAPSE) == 0) {
      ++joined;
      continue;
    }
    const int why = errno;
    if (why == EINVAL) continue;  // the system cannot do it
    given_back(before_ + unit * kHugePageBytes, kHugePageBytes);
    if (why != EAGAIN) break;  // it has no huge page now; else this one is in use otherwise
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
    try {
      thread_ = std::thread([this] {
        pthread_setname_np(pthread_self(), "loci-pages");
        run();
      });
    } catch (const std::system_error&) {
      // This is asked for when memory is short, which threads may be too: pages stay small, and nothing else.
    }
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
