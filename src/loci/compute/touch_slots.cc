// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/touch_slots.h"

#include <cstddef>
#include <vector>

namespace loci {

void touch_slots(Backend& backend, std::uint32_t group, std::uint32_t count) {
  const LayerGroup& shape = backend.info().groups[group];
  const std::vector<std::byte> zeros(shape.block_bytes);
  for (std::uint32_t slot = 0; slot < count; ++slot) {
    const LoadPiece piece{SlotId(slot), zeros};
    backend.load(group, {0, static_cast<std::uint32_t>(shape.layers.size())}, {&piece, 1},
                 BytesHeld::kDuringCall);
  }
}

}  // namespace loci
