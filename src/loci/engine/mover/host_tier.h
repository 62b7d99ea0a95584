// SPDX-License-Identifier: Apache-2.0
// The host tier's memory: a pool of slots for each layer group. A slot holds one block's part in the layout
// of the device: a layer's slice is contiguous, and so is the whole part. It does not know which block a slot
// holds.
//
// The memory comes from Backend::allocate_host(): on a CPU it costs nothing until it is filled, for a GPU it
// is pinned.
//
// As thread-safe as plain memory: the core decides who reads and who writes a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"

namespace loci {

class HostTier {
 public:
  // `slots`: by group; empty: no host tier. Errors: kResourceExhausted naming host_memory.
  static Result<HostTier> make(Backend& backend, const std::vector<std::uint32_t>& slots);

  // The memory of `layers`, which are counted in the group.
  std::span<std::byte> slices(std::uint32_t group, SlotId slot, LayerRange layers) const;
  std::span<std::byte> slice(std::uint32_t group, SlotId slot, std::uint32_t index) const {
    return slices(group, slot, {index, index + 1});
  }

 private:
  struct Pool {
    std::uint32_t slots = 0;
    std::uint32_t layers = 0;
    std::uint64_t slice_bytes = 0;
    HostMemory memory;
  };
  std::vector<Pool> pools_;
};

}  // namespace loci
