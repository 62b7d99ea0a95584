// SPDX-License-Identifier: Apache-2.0
// Where the state goes that other servers of the cluster read (engine/core/peer_reads.h): whoever talks to
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "loci/engine/core/plan.h"

namespace loci {

// Thread-safe. Called on the engine's threads; must not block. For each part of a PeerRead there is one call
// of give() or gone(), in any order; of a read that was left there may be calls still.
class PeerOutlet {
 public:
  virtual ~PeerOutlet() = default;
  virtual void answered(PeerAnswer answer) = 0;
  // A block's part in the group: all its layers, as the backend lays them out. `taken` is to be called once,
  // from any thread: its memory is let go. Until then the core counts it as on its way.
  virtual void give(PeerPlace place, std::uint32_t group, std::vector<std::byte> bytes,
                    std::function<void()> taken) = 0;
  virtual void gone(PeerGone gone) = 0;
};

}  // namespace loci
