// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/slot_pool.h"

#include <algorithm>
#include <utility>

#include "loci/base/check.h"

namespace loci {

SlotReservation::SlotReservation(SlotReservation&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      slot_(other.slot_),
      is_trial_(other.is_trial_),
      is_doubted_(other.is_doubted_) {}

SlotReservation& SlotReservation::operator=(SlotReservation&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::exchange(other.pool_, nullptr);
    slot_ = other.slot_;
    is_trial_ = other.is_trial_;
    is_doubted_ = other.is_doubted_;
  }
  return *this;
}

SlotReservation::~SlotReservation() { release(); }

void SlotReservation::release() {
  if (SlotPool* pool = std::exchange(pool_, nullptr)) pool->put_back(*this);
}

void SlotReservation::prove() {
  pool_->doubts_ = 0;
  if (!std::exchange(is_trial_, false)) return;
  pool_->trials_apart_ = std::max<std::uint64_t>(1, pool_->trials_apart_ / 2);
  pool_->next_trial_ = std::min(pool_->next_trial_, pool_->takes_ + pool_->trials_apart_);
}

SlotPool::SlotPool(std::uint32_t count) : is_aside_(count, false), taken_(count, false), used_(count, false) {
  fresh_.reserve(count);
  for (std::uint32_t i = count; i > 0; --i) fresh_.push_back(SlotId(i - 1));
}

std::optional<SlotReservation> SlotPool::try_aside() {
  const SlotId slot = aside_.front();
  aside_.pop_front();
  is_aside_[slot.value] = false;
  next_trial_ = takes_ + trials_apart_;
  return take_as(slot, true);
}

std::optional<SlotReservation> SlotPool::take() {
  const bool tries = is_trial_next();
  ++takes_;
  if (tries) return try_aside();
  for (std::vector<SlotId>* slots : {&free_, &fresh_}) {
    while (!slots->empty()) {
      const SlotId slot = slots->back();
      slots->pop_back();
      if (is_aside_[slot.value]) continue;
      if (std::optional<SlotReservation> taken = take_as(slot, false)) return taken;
    }
  }
  if (!aside_.empty()) return try_aside();
  return std::nullopt;
}

std::uint32_t SlotPool::ready_count() const {
  const auto aside = static_cast<std::uint32_t>(aside_.size());
  return free_count() - aside + (is_trial_next() ? 1 : 0);
}

std::optional<SlotId> SlotPool::rest() {
  while (!free_.empty()) {
    const SlotId slot = free_.back();
    free_.pop_back();
    if (taken_[slot.value] || is_aside_[slot.value] || !used_[slot.value]) continue;
    used_[slot.value] = false;
    --used_count_;
    fresh_.push_back(slot);
    return slot;
  }
  return std::nullopt;
}

std::optional<SlotReservation> SlotPool::take(SlotId slot) {
  if (slot.value < count() && is_aside_[slot.value]) {
    is_aside_[slot.value] = false;
    std::erase(aside_, slot);
  }
  return take_as(slot, false);
}

std::optional<SlotReservation> SlotPool::take_as(SlotId slot, bool is_trial) {
  if (slot.value >= count() || taken_[slot.value]) return std::nullopt;
  taken_[slot.value] = true;
  ++taken_count_;
  if (!used_[slot.value]) {
    used_[slot.value] = true;
    ++used_count_;
  }
  return SlotReservation(this, slot, is_trial);
}

void SlotPool::put_back(const SlotReservation& reservation) {
  const SlotId slot = reservation.slot_;
  LOCI_CHECK(taken_[slot.value], "a slot was freed twice");
  taken_[slot.value] = false;
  --taken_count_;
  if (!reservation.is_doubted_) return free_.push_back(slot);
  ++doubts_;
  if (aside_.empty() || reservation.is_trial_) {
    trials_apart_ = kTrialsApart;
    next_trial_ = takes_ + trials_apart_;
  }
  aside_.push_back(slot);
  is_aside_[slot.value] = true;
}

}  // namespace loci
