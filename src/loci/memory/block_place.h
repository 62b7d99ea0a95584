// SPDX-License-Identifier: Apache-2.0
// Where a block's state is now, for owners outside the index that keep track of it.
#pragma once

#include <optional>

#include "loci/memory/chain_key.h"
#include "loci/memory/tier.h"

namespace loci {

struct BlockPlace {
  ChainKey key;
  // The fastest of this server's own tiers that has the whole part of the first group, the one with the
  // widest window; absent: none has.
  std::optional<Tier> tier;
  friend bool operator==(const BlockPlace&, const BlockPlace&) = default;
};

}  // namespace loci
