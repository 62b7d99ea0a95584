// SPDX-License-Identifier: Apache-2.0
// Lineages alone, over an index of one group. (What is found of them is tested with the core.)
#include "loci/engine/core/prefixes.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "loci/engine/testing/transfers_testing.h"

namespace loci {
namespace {

// A request may have half of the context, and its front takes all of that but two blocks. So each cut drops
// one block, and a history that is as long as the context was cut once for each block of its second half.
constexpr std::uint32_t kContextBlocks = 1024;
constexpr std::uint32_t kFrontBlocks = kContextBlocks / 2 - 2;
constexpr std::uint32_t kManyCuts = kContextBlocks / 2;
constexpr std::uint32_t kLineagesMost = 8;

class PrefixesTest : public TransfersFixture {
 protected:
  PrefixesTest() : TransfersFixture({.block_count = 16, .disk_blocks = 16}, 4) {
    config_.context_tokens = kContextBlocks * kBlockTokens;
  }

  std::unique_ptr<const CoreLineage> cut(std::uint32_t cuts) const {
    Arrival event{RequestId(1), "g", run_of(0, std::size_t{kContextBlocks} * kBlockTokens), 1, 0, {}, kNever};
    for (std::uint32_t block = kFrontBlocks; block < kFrontBlocks + cuts; ++block)
      event.dropped.push_back({block * kBlockTokens, (block + 1) * kBlockTokens});
    return prefixes_.lineage_of(event, "g");
  }

  // How often the lineages that have originals were cut.
  static std::set<std::uint32_t> cuts_of(const CoreLineage& lineage, std::uint32_t cuts) {
    std::set<std::uint32_t> found;
    for (const auto& originals : lineage.originals) {
      for (const CoreLineage::Original& original : originals) found.insert(cuts - original.shift_blocks);
    }
    return found;
  }

  // The index knows the lineage after so many cuts.
  void make_known(std::uint32_t cuts) { known_.push_back(index_.open_gate(front_.block(), cut(cuts)->gate)); }

  Prefixes prefixes_{config_, index_, transfers_};
  BlockPin front_ = block(0);
  std::vector<BlockPin> known_;
};

// Each lineage that is looked at costs a hash for every block of a context, and each original a look at every
// probe. Clients choose how many cuts there are.
TEST_F(PrefixesTest, ABlockHasFewOriginalsHoweverOftenTheHistoryWasCut) {
  const auto lineage = cut(kManyCuts);
  ASSERT_EQ(lineage->originals.size(), 2u);
  for (const auto& originals : lineage->originals) EXPECT_EQ(originals.size(), kLineagesMost);
  EXPECT_EQ(cuts_of(*lineage, kManyCuts).size(), kLineagesMost) << "the same lineages for each block";
}

TEST_F(PrefixesTest, AllEarlierLineagesAreLookedAtWhereTheyAreFew) {
  EXPECT_EQ(cuts_of(*cut(8), 8), (std::set<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

// With small cuts a turn may make many at once: then the turn before is in none of the last few lineages.
TEST_F(PrefixesTest, LineagesThatTheIndexKnowsComeBeforeNewerOnes) {
  for (const std::uint32_t cuts : {7u, 100u}) make_known(cuts);
  EXPECT_EQ(cuts_of(*cut(kManyCuts), kManyCuts),
            (std::set<std::uint32_t>{0, 7, 100, 507, 508, 509, 510, 511}))
      << "the first one's root is there";
}

TEST_F(PrefixesTest, OfManyThatTheIndexKnowsTheNewestAreLookedAt) {
  for (std::uint32_t cuts = 1; cuts <= 20; ++cuts) make_known(cuts);
  EXPECT_EQ(cuts_of(*cut(kManyCuts), kManyCuts), (std::set<std::uint32_t>{13, 14, 15, 16, 17, 18, 19, 20}));
}

}  // namespace
}  // namespace loci
