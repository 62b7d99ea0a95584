// SPDX-License-Identifier: Apache-2.0
// What all moves need: the device, the host tier's memory, where ends are reported.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "loci/base/check.h"
#include "loci/engine/mover/host_tier.h"
#include "loci/engine/mover/mover.h"
#include "loci/engine/mover/mover_desk.h"

namespace loci {

struct MoverLink {
  Backend& backend;
  const HostTier& host;
  MoverDesk& desk;
  const MoverOptions& options;

  const LayerGroup& group(std::uint32_t index) const { return backend.info().groups[index]; }

  Status before_slice(const Move& move, std::uint32_t layer) const {
    return options.before_slice ? options.before_slice(move, layer) : Status();
  }

  // A slice of the move, whole and verified, comes to the device: the one place where keys are taken to
  // another position, in a copy, so that the source keeps what was computed.
  void arrive(const Move& move, const MovePart& part, std::uint32_t layer,
              std::span<const std::byte> slice) const {
    if (move.rotate_by == 0) {
      backend.write_layer(part.to, layer, slice);
    } else {
      std::vector<std::byte> rotated(slice.begin(), slice.end());
      backend.rotate_keys(layer, move.rotate_by, rotated);
      backend.write_layer(part.to, layer, rotated);
    }
    backend.layer_arrived(part.to, layer);
  }
};

}  // namespace loci
