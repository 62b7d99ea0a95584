// SPDX-License-Identifier: Apache-2.0
// Remembers which peer said that it has a block, for the blocks that were asked for last. A remembered block
// may be gone when it is read; a forgotten one is not read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "loci/memory/chain_key.h"

namespace loci {

struct PeerPlaceOf {
  std::uint32_t peer = 0;   // the peer's number; 0: nobody has the block
  std::uint8_t groups = 0;  // the groups that it has
};

// Thread-compatible. Remembers at least the latest kMax blocks, at most twice as many.
class PeerPlaces {
 public:
  static constexpr std::size_t kMax = 131'072;

  void set(const ChainKey& key, PeerPlaceOf place) {
    if (latest_.size() >= kMax) before_ = std::exchange(latest_, {});
    latest_[key] = place;
  }
  PeerPlaceOf find(const ChainKey& key) const {
    for (const Map* map : {&latest_, &before_}) {
      if (const auto at = map->find(key); at != map->end()) return at->second;
    }
    return {};
  }

 private:
  using Map = std::unordered_map<ChainKey, PeerPlaceOf, ChainKeyHash>;
  Map latest_, before_;
};

}  // namespace loci
