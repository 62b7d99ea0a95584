// SPDX-License-Identifier: Apache-2.0
// The modelled device of a world: for each token of each slot of each group, the prefix whose state is there.
// It sees at once when a pass copies or writes a slot that it must not, or names a slot outside the pool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "loci/compute/pass.h"
#include "loci/engine/core/core.h"
#include "loci/sim/core_world_require.h"

namespace loci {

// Thread-compatible. A violation aborts with a message.
class WorldDevice {
 public:
  struct Row {
    std::uint64_t content = 0;  // hash of the prefix; 0: nothing, or garbage
    std::uint64_t writer_pass = 0;
    std::uint64_t writer = 0;  // the request that wrote it
  };
  using Block = std::array<Row, kBlockTokens>;

  explicit WorldDevice(const std::vector<CoreGroup>& groups) {
    for (const CoreGroup& group : groups) groups_.emplace_back(group.block_count);
  }

  std::uint32_t groups() const { return static_cast<std::uint32_t>(groups_.size()); }
  Block& block(std::uint32_t group, SlotId slot) {
    require(group < groups_.size(), "groups are the device's");
    require(slot.value < groups_[group].size(), "slots are of the pool");
    return groups_[group][slot.value];
  }
  // The device's row for a position of the span's sequence.
  Row& row(const Span& span, std::uint32_t group, std::size_t position) {
    return block(group, span.tables[group].blocks[position / kBlockTokens])[position % kBlockTokens];
  }
  // Makes the copies that the pass begins with, before its first layer.
  void copy(const Pass& pass) {
    for (const BlockCopy& copy : pass.copies) {
      require(copy.from != copy.to, "copies are between different slots");
      require(copy.tokens > 0 && copy.tokens < kBlockTokens, "a copy is of some tokens");
      const Block& source = block(copy.group, copy.from);
      Block& target = block(copy.group, copy.to);
      for (std::uint32_t i = 0; i < copy.tokens; ++i) {
        require(source[i].content != 0, "what is copied is there");
        require(source[i].writer_pass != pass.id.value, "nothing is copied from a copy of the same pass");
        require(target[i].writer_pass != pass.id.value, "one writer a row");
        target[i] = {source[i].content, pass.id.value, 0};
      }
    }
  }
  // Empties all slots, because the process has ended.
  void clear() {
    for (std::vector<Block>& group : groups_) group.assign(group.size(), {});
  }

 private:
  std::vector<std::vector<Block>> groups_;
};

}  // namespace loci
