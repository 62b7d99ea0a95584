// SPDX-License-Identifier: Apache-2.0
// Receives the state that other servers of the cluster read (engine/core/peer_reads.h), and sends it to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "loci/engine/core/plan.h"

namespace loci {

// Thread-safe. Called on the engine's threads; must not block. For each part of a PeerRead there is one call
// of give() or gone(), in any order. Calls may still come for a read that the peer has given up.
class PeerOutlet {
 public:
  virtual ~PeerOutlet() = default;
  virtual void answered(PeerAnswer answer) = 0;
  // Gives a block's part in the group: all its layers, in the backend's layout. The outlet calls `taken`
  // once, from any thread, and gives the memory back by it. Until then the core counts the part as in flight.
  using Taken = std::function<void(std::vector<std::byte>)>;
  virtual void give(PeerPlace place, std::uint32_t group, std::vector<std::byte> bytes, Taken taken) = 0;
  virtual void gone(PeerGone gone) = 0;
};

}  // namespace loci
