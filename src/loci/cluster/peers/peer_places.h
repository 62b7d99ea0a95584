// SPDX-License-Identifier: Apache-2.0
// Which peer said that it has a block, of the blocks that were asked for last. What is remembered may be gone
// by the time that it is read; what was forgotten is not read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "loci/memory/chain_key.h"

namespace loci {

struct PeerPlaceOf {
  std::uint32_t peer = 0;   // its number; 0: nobody's
  std::uint8_t groups = 0;  // that it has
};

// Thread-compatible. Remembers the latest kMax blocks at least, twice as many at most.
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
