// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/modelled_hidden.h"

#include <algorithm>
#include <utility>

#include "loci/base/check.h"

namespace loci::sim {

ModelledHidden::ModelledHidden(const CoreConfig& config) {
  const std::uint32_t places = capture_places(config);
  if (places == 0) return;
  places_ = std::make_unique<CapturePlaces>(config.layers, places, config.hidden.share);
  slots_.assign(config.groups.front().block_count, Slot::kOther);
  claimed_.assign(slots_.size(), 0);
}

// --- saving ---

std::uint64_t ModelledHidden::begin(const Pass& pass) {
  if (!is_on()) return 0;
  read_ = 0;
  pieces_ = places_->begin(pass);
  std::uint64_t rows = 0;
  for (const CapturePlaces::Piece& piece : pieces_) rows += piece.count;
  return rows;
}

void ModelledHidden::end(const PassDone& done, std::uint64_t projected) {
  LOCI_CHECK(projected == read_, "a pass projects what it reads of hidden states");
  unclaim_all();
  for (const CapturePlaces::Piece& piece : std::exchange(pieces_, {})) {
    if (done.spans[piece.span].ok)
      places_->add(piece);
    else
      places_->lost(piece);
  }
}

bool ModelledHidden::take_capture(const Move& move) {
  LOCI_CHECK(is_on() && move.parts.size() == 1 && move.from == Tier::kDevice,
             "what is captured is of one group, on the device");
  const SlotId slot = move.parts.front().from;
  if (!places_->open(slot, move.entry)) return false;
  places_->close(slot);
  return true;
}

// --- loading ---

void ModelledHidden::begin_load(SlotId slot) {
  if (!is_on()) return;
  places_->forget(slot);
  replace(slot);
}

void ModelledHidden::replace(SlotId slot) {
  if (!is_on()) return;
  if (std::exchange(slots_[slot.value], Slot::kOther) == Slot::kHidden) ++replaced_;
}

bool ModelledHidden::come(SlotId slot) {
  ++came_;
  const bool claimed = claimed_[slot.value] != 0;
  if (claimed) {
    ++projected_, ++read_;
  } else {
    slots_[slot.value] = Slot::kHidden;
  }
  return claimed;
}

bool ModelledHidden::project(SlotId slot) {
  if (!is_on() || std::exchange(slots_[slot.value], Slot::kOther) == Slot::kOther) return false;
  ++projected_, ++read_;
  return true;
}

void ModelledHidden::claim(SlotId slot) {
  if (!is_on() || std::exchange(claimed_[slot.value], 1) != 0) return;
  claims_.push_back(slot);
}

void ModelledHidden::unclaim(SlotId slot) {
  if (is_on()) claimed_[slot.value] = 0;
}

void ModelledHidden::unclaim_all() {
  for (const SlotId slot : std::exchange(claims_, {})) claimed_[slot.value] = 0;
}

void ModelledHidden::check(std::uint64_t loaded) const {
  LOCI_CHECK(came_ == loaded, "as many blocks came as hidden states as were loaded so");
  const auto waiting = static_cast<std::uint64_t>(std::ranges::count(slots_, Slot::kHidden));
  LOCI_CHECK(came_ == projected_ + replaced_ + waiting,
             "what came as hidden states is projected once, replaced before, or waits");
}

}  // namespace loci::sim
