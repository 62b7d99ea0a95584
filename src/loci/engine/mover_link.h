// What all moves need: the device, the host tier's memory, where ends are reported.
#pragma once

#include <cstdint>
#include <span>

#include "loci/base/check.h"
#include "loci/engine/host_tier.h"
#include "loci/engine/mover.h"
#include "loci/engine/mover_desk.h"

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

  // A slice of the move, whole and verified, comes to the device: the one place where what is not from the
  // same position is rotated.
  void arrive(const Move& move, const MovePart& part, std::uint32_t layer,
              std::span<const std::byte> slice) const {
    LOCI_CHECK(move.rotate_by == 0, "this backend does not rotate keys");
    backend.write_layer(part.to, layer, slice);
    backend.layer_arrived(part.to, layer);
  }
};

}  // namespace loci
