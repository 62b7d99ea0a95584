// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/run/inbox.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <utility>

namespace loci {
namespace {

// Entries of the disk that are put back into the index in one step: some 30 µs. So many such batches wait,
// since each that is waited for costs a change of threads.
constexpr std::size_t kRecoveredAtOnce = 8;
constexpr std::size_t kBatchesMost = 8;
// Ends of moves that are told in one step: each costs it some µs, and may cost an admission.
constexpr std::size_t kEndedAtOnce = 16;

}  // namespace

void Inbox::post(InboxItem item) {
  {
    const MutexLock lock(mutex_);
    items_.push_back(std::move(item));
  }
  changed_.notify_one();
}

void Inbox::post_recovered(Recovered found) {
  for (std::size_t begin = 0; begin == 0 || begin < found.entries.size(); begin += kRecoveredAtOnce) {
    const std::size_t end = std::min(found.entries.size(), begin + kRecoveredAtOnce);
    Recovered batch;
    batch.entries.assign(std::make_move_iterator(found.entries.begin() + static_cast<std::ptrdiff_t>(begin)),
                         std::make_move_iterator(found.entries.begin() + static_cast<std::ptrdiff_t>(end)));
    batch.now = found.now;
    batch.last = found.last && end == found.entries.size();
    if (!post_batch(std::move(batch))) return;
  }
}

void Inbox::post_ended(MovesEnded ended) {
  for (std::size_t begin = 0; begin < ended.moves.size(); begin += kEndedAtOnce) {
    const auto first = ended.moves.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto count = static_cast<std::ptrdiff_t>(std::min(ended.moves.size() - begin, kEndedAtOnce));
    post(MovesEnded{.moves = {first, first + count}});
  }
}

bool Inbox::post_batch(Recovered batch) {
  {
    MutexLock lock(mutex_);
    batch_taken_.wait(lock, [this]() REQUIRES(mutex_) { return stopping_ || batches_ < kBatchesMost; });
    if (stopping_) return false;
    ++batches_;
    items_.emplace_back(std::in_place_type<Recovered>, std::move(batch));
  }
  changed_.notify_one();
  return true;
}

void Inbox::note_step() {
  {
    const MutexLock lock(mutex_);
    stepped_ = true;
  }
  changed_.notify_one();
}

bool Inbox::take(std::vector<InboxItem>& items, Nanos most) {
  {
    MutexLock lock(mutex_);
    const auto ready = [this]() REQUIRES(mutex_) { return stopping_ || stepped_ || !items_.empty(); };
    if (most == kNever) {
      changed_.wait(lock, ready);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(most), ready);
    }
    if (stopping_) return false;
    stepped_ = false;
    const auto end = items_.begin() + static_cast<std::ptrdiff_t>(std::min(items_.size(), kTakenAtOnce));
    items.assign(std::make_move_iterator(items_.begin()), std::make_move_iterator(end));
    items_.erase(items_.begin(), end);
    batches_ -= static_cast<std::size_t>(std::ranges::count_if(
        items, [](const InboxItem& item) { return std::holds_alternative<Recovered>(item); }));
  }
  batch_taken_.notify_all();
  return true;
}

bool Inbox::empty() const {
  const MutexLock lock(mutex_);
  return items_.empty();
}

void Inbox::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  batch_taken_.notify_all();
}

}  // namespace loci
