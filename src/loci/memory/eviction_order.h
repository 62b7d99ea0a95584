// SPDX-License-Identifier: Apache-2.0
// The seam between the index, which knows what may be evicted, and the policies (policy/eviction.h),
// which know what should be.
#pragma once

#include <cstddef>
#include <cstdint>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/memory/state_form.h"

namespace loci {

using BlockId = StrongId<struct BlockTag, std::uint32_t>;  // a node of the index; reused after its end
inline constexpr BlockId kNoBlock{UINT32_MAX};

inline constexpr std::uint32_t kNotWanted = UINT32_MAX;

// What a policy knows of a copy of a block's part. All copies in one order are of one tier and group.
// (Not of one form: those on the disk share its room.)
struct EvictionFacts {
  Nanos last_used = 0;      // when its last user let it go
  Nanos born = 0;           // when it got its slot
  std::uint32_t depth = 0;  // 1: the first block of a sequence
  // The window of the sequence that used it last has moved past it: only a sequence that parts from that one
  // near here would need it again.
  bool behind_window = false;
  // This server's slower tiers that hold the part: bit 1 << Tier is set for each. They remain when this copy
  // goes. (A shared store is not among them: what was written to it need not be there any more.)
  std::uint8_t elsewhere = 0;
  StateForm form = StateForm::kKeysAndValues;
  // The place in the queue of the first waiting request that needs it (AttentionStore §3.3.2's look-ahead
  // window): the least is expected to be admitted next. kNotWanted: none in the window.
  std::uint32_t wanted = kNotWanted;
};

// One tier's copies of one group's parts, in either form, that may be given up, in the order in which they
// are. Below the device what is wanted, and in no slower tier of this server, comes last: no save takes its
// room, so an order that chose it before others would choose it again and again, and nothing would be saved.
// Thread-compatible. Deterministic.
class EvictionOrder {
 public:
  virtual ~EvictionOrder() = default;
  virtual void insert(BlockId block, const EvictionFacts& facts) = 0;
  // `facts`: as they were inserted.
  virtual void erase(BlockId block, const EvictionFacts& facts) = 0;
  // It was used again, and `after` differs from `before` in the last use alone.
  virtual void use(BlockId block, const EvictionFacts& before, const EvictionFacts& after) {
    erase(block, before);
    insert(block, after);
  }
  // The next victim, which stays until it is erased; kNoBlock where there is none.
  virtual BlockId choose(Nanos now) = 0;
  // Who may be chosen a few calls later, so that its node can be read ahead; kNoBlock: nobody knows.
  // A hint: no decision depends on it.
  virtual BlockId soon() const { return kNoBlock; }
  virtual std::size_t size() const = 0;
};

}  // namespace loci
