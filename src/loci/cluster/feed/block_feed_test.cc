// SPDX-License-Identifier: Apache-2.0
// What an instance publishes, beside a plain model of it, and as a reader follows it who misses changes.
#include "loci/cluster/feed/block_feed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "loci/base/random.h"
#include "loci/cluster/feed/block_feed_testing.h"

namespace loci {
namespace {

std::vector<std::uint64_t> names(std::initializer_list<std::uint64_t> numbers) {
  std::vector<std::uint64_t> out;
  for (const std::uint64_t number : numbers) out.push_back(number * 4);
  return out;
}

TEST(BlockFeed, AChunkIsWhereTheBlockIsThatEndsAboutThere) {
  BlockFeed feed({.epoch = 9, .block_bytes = 1 << 20});
  Reader reader;
  // Five chunks of 100 bytes and a bit; 101 tokens, three whole blocks.
  const std::vector<ChainKey> keys = {block_key(1), block_key(2), block_key(3)};
  feed.prompt({.chunks = names({11, 12, 13, 14, 15}), .chunk_bytes = 100, .bytes = 505}, keys, 101);
  reader.read(feed);
  EXPECT_TRUE(reader.held.empty()) << "nothing is computed yet";
  feed.moved(std::vector<BlockPlace>{{keys[0], Tier::kDevice}, {keys[1], Tier::kDevice}});
  reader.read(feed);
  EXPECT_EQ(reader.held, (Held{{44, Tier::kDevice}, {48, Tier::kDevice}, {52, Tier::kDevice}}));
  feed.moved(std::vector<BlockPlace>{{keys[0], Tier::kDisk}, {keys[1], std::nullopt}});
  reader.read(feed);
  EXPECT_EQ(reader.held, (Held{{44, Tier::kDisk}}));
  EXPECT_EQ(reader.snapshots, 1) << "who begins reads pages, then changes";
  // What another prompt divides a little differently stays with the block that is there.
  feed.prompt({.chunks = names({11, 12}), .chunk_bytes = 100, .bytes = 200}, keys, 101);
  reader.read(feed);
  EXPECT_EQ(reader.held, (Held{{44, Tier::kDisk}}));
  feed.check_invariants();
  EXPECT_GT(reader.costs.compute_us, reader.costs.host_us);
  EXPECT_GT(reader.costs.disk_us, reader.costs.host_us);
}

// The costs know the shared store alone, where there is one.
TEST(BlockFeed, PeersBesideAStoreHaveTheirOwnCost) {
  CostCurves curves;
  curves.shared_read = {0, 1'000'000};
  const auto peer_us = [&](std::optional<LinkCost> peers) {
    BlockFeed feed({.epoch = 9, .block_bytes = 1'000'000, .peer_read = peers});
    feed.costs(curves);
    Reader reader;
    reader.read(feed);
    return reader.costs.peer_us;
  };
  EXPECT_GT(peer_us(std::nullopt), 1000000u);
  EXPECT_LT(peer_us(LinkCost{0, 1'000'000'000}), 10000u);
}

TEST(BlockFeed, WhoKnowsAnotherEpochOrTooLittleReadsPages) {
  BlockFeed feed({.epoch = 9, .chunks = {.events_kept = 4}});
  const std::vector<ChainKey> keys = {block_key(1)};
  const auto move = [&](std::optional<Tier> tier) { feed.moved(std::vector<BlockPlace>{{keys[0], tier}}); };
  feed.prompt({.chunks = names({1}), .chunk_bytes = 256, .bytes = 256}, keys, 64);
  EXPECT_TRUE(feed.changes({.epoch = 8, .after = 0}).is_gap);
  EXPECT_TRUE(feed.changes({.epoch = 9, .after = 1}).is_gap) << "a number that was not given yet";
  EXPECT_FALSE(feed.changes({.epoch = 9, .after = 0}).is_gap);
  for (int i = 0; i < 3; ++i) {
    move(Tier::kDevice);
    move(std::nullopt);
  }
  EXPECT_TRUE(feed.changes({.epoch = 9, .after = 1}).is_gap);
  const FeedChanges kept = feed.changes({.epoch = 9, .after = 2});
  EXPECT_FALSE(kept.is_gap);
  EXPECT_EQ(kept.last, 6u);
  EXPECT_EQ(kept.changes.size(), 4u);
  EXPECT_EQ(feed.stats().gaps_total, 3u);
}

// What is published of at most so many chunks, by the words of the header.
struct Model {
  struct Chunk {
    std::uint64_t block = 0, came = 0, used = 0, tenant = 0;  // when it came to the block, and was used
  };
  std::map<std::uint64_t, Chunk> chunks;
  std::map<std::uint64_t, Tier> blocks;
  std::uint64_t uses = 0;
  std::size_t most = 12, of_block_max = 3;

  void prompt(const std::vector<std::uint64_t>& text, const std::vector<std::uint64_t>& keys,
              std::size_t tokens, std::uint64_t bytes, std::uint64_t tenant) {
    std::map<std::uint64_t, std::size_t> named;  // by place in `keys`
    for (std::size_t i = text.size(); i-- > 0;) {
      const std::uint64_t token = std::max<std::uint64_t>(1, tokens * (i + 1) * 256 / bytes);
      const std::size_t place = std::min<std::size_t>((token - 1) / kBlockTokens, keys.size() - 1);
      const std::uint64_t block = keys[place];
      if (++named[place] > of_block_max) continue;
      const auto known = chunks.find(text[i]);
      ++uses;
      if (known == chunks.end()) {
        make_room_at(block);
        if (chunks.size() == most) make_room();
        chunks[text[i]] = {.block = block, .came = uses, .used = uses, .tenant = tenant};
        continue;
      }
      known->second.used = uses;
      if (known->second.block == block || blocks.contains(known->second.block)) continue;
      make_room_at(block);
      known->second.block = block;
      known->second.came = uses;
    }
  }
  void make_room_at(std::uint64_t block) {
    std::map<std::uint64_t, std::uint64_t> of_block;  // names by when they came
    for (const auto& [name, chunk] : chunks) {
      if (chunk.block == block) of_block[chunk.came] = name;
    }
    if (of_block.size() == of_block_max) chunks.erase(of_block.begin()->second);
  }
  void make_room() {
    std::map<std::uint64_t, std::map<std::uint64_t, std::uint64_t>> of_tenants;  // names by their use
    for (const auto& [name, chunk] : chunks) of_tenants[chunk.tenant][chunk.used] = name;
    const auto most_of =
        std::max_element(of_tenants.begin(), of_tenants.end(), [](const auto& a, const auto& b) {
          return std::pair(a.second.size(), a.first) < std::pair(b.second.size(), b.first);
        });
    chunks.erase(most_of->second.begin()->second);
  }
  Held held() const {
    Held out;
    for (const auto& [name, chunk] : chunks) {
      if (const auto at = blocks.find(chunk.block); at != blocks.end()) out[name] = at->second;
    }
    return out;
  }
};

TEST(BlockFeed, WhoFollowsItHasWhatAPlainModelHas) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    std::uint64_t epoch = 1;
    const PublishedChunksOptions chunks{.chunks_max = 12, .of_block_max = 3, .events_kept = 16};
    std::optional<BlockFeed> feed(BlockFeedOptions{.chunks = chunks});
    Model model;
    Reader reader;
    const auto happen = [&] {
      if (random.below(3) == 0) {
        // A prompt: a path in a tree of chunks, and one in a tree of blocks.
        std::vector<std::uint64_t> text, keys;
        const std::uint64_t tenant = random.below(3);
        std::uint64_t name = 1 + 10'000 * tenant;
        for (std::uint64_t count = 1 + random.below(6); count > 0; --count)
          text.push_back((name = name * 3 + random.below(3)) * 4);
        for (std::uint64_t count = 1 + random.below(4); count > 0; --count) keys.push_back(random.below(20));
        const std::uint64_t bytes = text.size() * 256 + random.below(256);
        const std::size_t tokens = keys.size() * kBlockTokens + 1 + random.below(31);
        std::vector<ChainKey> chain;
        for (const std::uint64_t key : keys) chain.push_back(block_key(key));
        feed->prompt({.chunks = text, .chunk_bytes = 256, .bytes = bytes, .ends = {}, .tenant = tenant},
                     chain, tokens);
        model.prompt(text, keys, tokens, bytes, tenant);
        return;
      }
      std::vector<BlockPlace> places;
      for (std::uint64_t count = 1 + random.below(3); count > 0; --count) {
        const std::uint64_t block = random.below(20);
        const std::uint64_t tier = random.below(4);
        if (tier < 3) {
          model.blocks[block] = static_cast<Tier>(tier);
          places.push_back({block_key(block), static_cast<Tier>(tier)});
        } else {
          model.blocks.erase(block);
          places.push_back({block_key(block), std::nullopt});
        }
      }
      feed->moved(places);
    };
    for (int turn = 0; turn < 200; ++turn) {
      happen();
      feed->check_invariants();
      if (random.below(100) == 0) {  // it starts anew, with nothing
        feed.emplace(BlockFeedOptions{.epoch = ++epoch, .chunks = chunks});
        model = {};
      }
      if (random.below(40) == 0) reader.read_pages(*feed, happen);
      if (random.below(8) != 0) continue;
      reader.read(*feed);
      ASSERT_EQ(reader.held, model.held()) << "seed " << seed << ", turn " << turn;
    }
    EXPECT_GT(reader.snapshots, 1);
  }
}

// Text of which no token is computed (a field that the endpoint ignores within a message) names little,
// however long it is, and however often it comes.
TEST(BlockFeed, ABlockHasFewChunks) {
  BlockFeed feed({.epoch = 5});
  const std::vector<ChainKey> keys = {block_key(1), block_key(2)};
  feed.moved(std::vector<BlockPlace>{{keys[0], Tier::kDevice}, {keys[1], Tier::kDevice}});
  for (std::uint64_t prompt = 0; prompt < 3; ++prompt) {
    std::vector<std::uint64_t> text(4096);
    for (std::uint64_t i = 0; i < text.size(); ++i) text[i] = 4 * (prompt * text.size() + i + 1);
    feed.prompt({.chunks = text, .chunk_bytes = 256, .bytes = 4096 * 256}, keys, 70);
  }
  Reader reader;
  reader.read(feed);
  EXPECT_EQ(reader.held.size(), 16u);
  EXPECT_TRUE(reader.held.contains(std::uint64_t{4} * 3 * 4096)) << "the latest prompt's are told";
  EXPECT_LE(feed.stats().changes_total, 3 * 2 * 16u);
  const std::uint64_t told = feed.stats().changes_total;
  feed.moved(std::vector<BlockPlace>{{keys[0], std::nullopt}, {keys[1], Tier::kDisk}});
  reader.read(feed);
  EXPECT_EQ(feed.stats().changes_total, told + 16);
  feed.check_invariants();
}

// 80 chunks of two blocks each, of which 66 have names.
TEST(BlockFeed, OfALongPromptEveryEighthChunkIsPublished) {
  BlockFeed feed({.epoch = 5});
  std::vector<ChainKey> keys;
  std::vector<BlockPlace> places;
  for (std::uint64_t i = 0; i < 160; ++i) {
    keys.push_back(block_key(i));
    places.push_back({keys[i], i < 142 ? Tier::kDevice : Tier::kHost});  // the first 71 chunks
  }
  std::vector<std::uint64_t> text;
  for (std::uint64_t i = 1; i <= 66; ++i) text.push_back(4 * i);
  feed.prompt({.chunks = text, .chunk_bytes = 256, .bytes = 80 * 256}, keys, 160 * kBlockTokens);
  feed.moved(places);
  Reader reader;
  reader.read(feed);
  ASSERT_EQ(reader.held.size(), 66u);
  EXPECT_EQ(reader.held[4 * 64], Tier::kDevice);
  EXPECT_EQ(reader.held[4 * 65], Tier::kHost) << "it ends where the chunk 72 ends";
  EXPECT_EQ(reader.held[4 * 66], Tier::kHost);
}

TEST(BlockFeed, ATenantTakesNobodyElsesShare) {
  BlockFeed feed({.epoch = 5, .chunks = {.chunks_max = 100}});
  const auto prompt = [&](std::uint64_t tenant, std::uint64_t number) {
    const std::vector<ChainKey> keys = {block_key(number)};
    feed.moved(std::vector<BlockPlace>{{keys[0], Tier::kDevice}});
    feed.prompt({.chunks = names({number}), .chunk_bytes = 256, .bytes = 256, .ends = {}, .tenant = tenant},
                keys, 40);
  };
  for (std::uint64_t i = 1; i <= 30; ++i) prompt(7, i);
  for (std::uint64_t i = 1'000; i < 2'000; ++i) prompt(8, i);
  Reader reader;
  reader.read(feed);
  EXPECT_EQ(reader.held.size(), 100u);
  for (std::uint64_t i = 1; i <= 30; ++i) EXPECT_TRUE(reader.held.contains(4 * i)) << i;
  for (std::uint64_t i = 1; i <= 70; ++i) EXPECT_TRUE(reader.held.contains(4 * (2'000 - i))) << i;
  // Where one has it all another gets its share.
  for (std::uint64_t i = 3'000; i < 3'100; ++i) prompt(9, i);
  reader.read(feed);
  EXPECT_EQ(std::distance(reader.held.lower_bound(12'000), reader.held.end()), 35);
  for (std::uint64_t i = 1; i <= 30; ++i) EXPECT_TRUE(reader.held.contains(4 * i)) << i;
  feed.check_invariants();
}

// The core tells while fronts ask, and nobody sees a state that was not the last one in the end.
TEST(BlockFeed, IsToldWhileItIsAsked) {
  BlockFeed feed({.epoch = 5, .chunks = {.events_kept = 64}});
  constexpr std::uint64_t kBlocks = 50, kMoves = 20'000;
  for (std::uint64_t i = 0; i < kBlocks; ++i)
    feed.prompt({.chunks = names({i + 1}), .chunk_bytes = 256, .bytes = 256},
                std::vector<ChainKey>{block_key(i)}, 40);
  std::atomic<bool> over = false;
  std::vector<std::thread> readers;
  std::vector<Reader> read(2);
  for (Reader& reader : read) {
    readers.emplace_back([&] {
      while (!over) reader.read(feed);
      reader.read(feed);
    });
  }
  Random random(3);
  Held expected;
  for (std::uint64_t move = 0; move < kMoves; ++move) {
    const std::uint64_t block = random.below(kBlocks), tier = random.below(4);
    if (tier < 3)
      expected[4 * (block + 1)] = static_cast<Tier>(tier);
    else
      expected.erase(4 * (block + 1));
    feed.moved(std::vector<BlockPlace>{
        {block_key(block), tier < 3 ? std::optional(static_cast<Tier>(tier)) : std::nullopt}});
  }
  over = true;
  for (std::thread& thread : readers) thread.join();
  for (const Reader& reader : read) EXPECT_EQ(reader.held, expected);
  feed.check_invariants();
}

// More than a page, of which some goes while it is read.
TEST(BlockFeed, PagesAreBoundedAndComeToAnEnd) {
  BlockFeed feed({.epoch = 5});
  constexpr std::uint64_t kChunks = 3 * kFeedEntriesMax + 5;
  for (std::uint64_t i = 0; i < kChunks; ++i) {
    const std::vector<ChainKey> keys = {block_key(i)};
    feed.moved(std::vector<BlockPlace>{{keys[0], Tier::kHost}});
    feed.prompt({.chunks = names({i + 1}), .chunk_bytes = 256, .bytes = 256}, keys, 64);
  }
  FeedPageQuestion question;
  std::size_t entries = 0, pages = 0;
  do {
    const FeedPage page = read_feed_page(write_feed_page(feed.page(question)), question).value();
    entries += page.entries.size();
    ++pages;
    question = {.epoch = page.epoch, .place = page.next};
  } while (question.place != 0);
  EXPECT_EQ(entries, kChunks);
  EXPECT_EQ(pages, 4u);
  EXPECT_TRUE(feed.page({.epoch = 5, .place = UINT32_MAX}).entries.empty());
}

}  // namespace
}  // namespace loci
