// SPDX-License-Identifier: Apache-2.0
// Receives the state that other servers of the cluster read (engine/core/peer_reads.h), and sends it to them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "loci/compute/pass.h"
#include "loci/engine/core/plan.h"

namespace loci {

// Which layers of a group these rounds have of a model with so many layers; there may be none.
inline LayerRange layers_of(const PeerRounds& rounds, const LayerGroup& group, std::uint32_t layers) {
  const auto first_of = [&](std::uint32_t round) {
    const auto at = std::ranges::lower_bound(group.layers, layers * round / rounds.of);
    return static_cast<std::uint32_t>(at - group.layers.begin());
  };
  return {first_of(rounds.begin), first_of(rounds.end)};
}

// Some layers of a block's part in a group, in the backend's layout.
struct PeerSlices {
  PeerPlace place;
  std::uint32_t group = 0;
  std::uint32_t first = 0;        // index in the group of the first layer
  std::uint64_t layer_bytes = 0;  // of each layer
  bool is_last = true;            // no later layers follow
};

// State that a peer is given. Its bytes do not change, and its move goes on, until it is destroyed, which may
// be on any thread.
class PeerBytes {
 public:
  virtual ~PeerBytes() = default;
  virtual std::span<const std::byte> bytes() const = 0;
};

// Thread-safe. Called on the engine's threads; must not block. For each part of a PeerRead give() is called
// once or more, with its layers in order, or gone(); or gone() among calls of give(), after which those that
// still come count no more. Parts come in any order. Calls may still come for a read that the peer has given
// up.
class PeerOutlet {
 public:
  virtual ~PeerOutlet() = default;
  virtual void answered(PeerAnswer answer) = 0;
  // Until the outlet destroys `given` the core counts the bytes as in flight.
  virtual void give(const PeerSlices& slices, std::unique_ptr<const PeerBytes> given) = 0;
  virtual void gone(PeerGone gone) = 0;
};

}  // namespace loci
