// SPDX-License-Identifier: Apache-2.0
// Shared by tests of owners that work on the index and the transfers: an index of one group with its tiers,
// and the transfers over it, without a core.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "loci/engine/core/transfers.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/policy/eviction.h"

namespace loci {

class TransfersFixture : public testing::Test {
 protected:
  // `group` has the slots of each tier, none for the shared store.
  TransfersFixture(CoreGroup group, std::uint32_t saves_max) : config_(tiers(group, saves_max)) {}

  // A block of a sequence of its own, without state.
  BlockPin block(std::uint32_t first) {
    const Tokens tokens = run_of(first, kBlockTokens);
    const BlockPin root = index_.open_root(hasher_.root("g"));
    return index_.open_full(root.block(), hasher_.child(hasher_.root("g"), tokens), tokens);
  }
  // The same, whose state is on the device.
  BlockPin computed(std::uint32_t first) {
    BlockPin pin = block(first);
    EXPECT_TRUE(index_.place(pin, 0));
    index_.fill(*index_.claim(pin.block()), kBlockTokens);
    return pin;
  }

 private:
  static CoreConfig tiers(CoreGroup group, std::uint32_t saves_max) {
    CoreConfig config = config_of(group.block_count);
    group.block_bytes = 64;
    config.groups = {group};
    config.saves_max = saves_max;
    return config;
  }
  IndexPools pools() const {
    const auto costs = std::make_shared<const CostModel>(config_.costs);
    const auto pool = [&](Tier tier, std::uint32_t slots) {
      const EvictionPlace place{.tier = tier, .block_bytes = 64, .seed = 1, .holes = true};
      const auto order = [&] { return make_eviction_order("lru", place, costs).value(); };
      std::vector<IndexPool> pools(1);
      pools[0] = {slots, order(), tier == Tier::kDisk ? nullptr : order()};
      return pools;
    };
    const CoreGroup& group = config_.groups.front();
    IndexPools pools;
    pools.device = pool(Tier::kDevice, group.block_count);
    if (group.host_blocks > 0) pools.host = pool(Tier::kHost, group.host_blocks);
    pools.disk = pool(Tier::kDisk, group.disk_blocks);
    pools.hole_records = group.disk_blocks;
    return pools;
  }

 protected:
  CoreConfig config_;
  CostModel costs_{config_.costs};
  ChainKeyHasher hasher_{{}, {}};
  BlockIndex index_{pools()};
  Transfers transfers_{config_, costs_, index_};
};

}  // namespace loci
