// SPDX-License-Identifier: Apache-2.0
// Hidden states on a modelled device (HCache §3.2, §4.2.2): which blocks' rows passes have copied out, by the
// mover's own bookkeeping, and which slots hold blocks that came as hidden states and are to be projected.
//
// An example, of a block that comes to slot 7:
//
//     load ends      slot 7 holds hidden states
//     a pass reads   it projects them: from here on the slot holds keys and values
//
// A pass that begins while the load is under way claims the slot, and projects the block when it comes. If
// the pass gives up before, the next one that reads the slot projects it. A block that nobody reads before
// its slot gets another one is never projected.
//
// Invariants: as many blocks came as the core knows of, and each was projected once, or replaced before, or
// still waits (check()); a pass projects just what it reads of hidden states (end()). Not modelled: what a
// mover projects by itself, because it saves or rotates such a block.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "loci/base/ids.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/mover/capture_places.h"

namespace loci::sim {

// Thread-compatible. All is O(1) a block, captures as in CapturePlaces.
class ModelledHidden {
 public:
  // Without hidden states in the configuration nothing is ever there.
  explicit ModelledHidden(const CoreConfig& config);
  bool is_on() const { return places_ != nullptr; }

  // --- saving ---

  // From the next pass on these blocks are captured.
  void follow(const HiddenShare& share) {
    if (is_on()) places_->follow(share);
  }
  // A pass begins. Returns how many rows it copies out.
  std::uint64_t begin(const Pass& pass);
  // The pass has ended, and has projected so many blocks.
  void end(const PassDone& done, std::uint64_t projected);
  // Takes the block's capture, to be written. False: not all of it was captured, or it gave way.
  bool take_capture(const Move& move);

  // --- loading ---

  // A load into the slot begins.
  void begin_load(SlotId slot);
  // The running pass writes another block's rows to the slot.
  void replace(SlotId slot);
  // A block has come to the slot as hidden states. True: the running pass has claimed it, and projects it.
  bool come(SlotId slot);
  // A block has come as hidden states, and was projected meanwhile.
  void come_projected() { ++came_, ++projected_; }
  // The running pass reads the slot. True: hidden states are there, which it projects.
  bool project(SlotId slot);
  // The running pass reads what a load under way brings to the slot.
  void claim(SlotId slot);
  // What was to come to the slot does not.
  void unclaim(SlotId slot);
  // The running pass waits no more.
  void unclaim_all();

  // `loaded`: blocks, as the core says. Aborts on a broken invariant. O(slots).
  void check(std::uint64_t loaded) const;

 private:
  enum class Slot : std::uint8_t { kOther, kHidden };
  std::unique_ptr<CapturePlaces> places_;     // null: there are no hidden states
  std::vector<CapturePlaces::Piece> pieces_;  // of the running pass
  std::vector<Slot> slots_;
  std::vector<std::uint8_t> claimed_;  // by slot
  std::vector<SlotId> claims_;
  std::uint64_t came_ = 0, projected_ = 0, replaced_ = 0;
  std::uint64_t read_ = 0;  // by the running pass, as hidden states
};

}  // namespace loci::sim
