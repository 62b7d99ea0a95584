// SPDX-License-Identifier: Apache-2.0
// Every small world: all sequences of a few arrivals, ends of passes and cancels, with prompts over two
// letters whose lengths straddle blocks, in pools of a few blocks. LOCI_WORLD_DEPTH=N lets N events
// happen before the world only finishes what is there (the default takes seconds, each more about ten
// times as long).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/base/rounds_testing.h"
#include "loci/sim/core_world.h"

namespace loci {
namespace {

// Goes through all sequences of choices, depth first.
class Enumeration {
 public:
  Chooser chooser() {
    next_ = 0;
    return [this](std::uint64_t bound) {
      if (next_ == taken_.size()) taken_.emplace_back(0, bound);
      return taken_[next_++].first;
    };
  }
  // False: that was the last sequence.
  bool advance() {
    while (!taken_.empty() && taken_.back().first + 1 == taken_.back().second) taken_.pop_back();
    if (taken_.empty()) return false;
    ++taken_.back().first;
    return true;
  }

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken_;  // choice, bound
  std::size_t next_ = 0;
};

std::vector<TokenId> letters(std::size_t a, std::size_t b) {
  std::vector<TokenId> tokens(a, TokenId(0));
  tokens.insert(tokens.end(), b, TokenId(1));
  return tokens;
}

// One less under a sanitizer, which leaves about a tenth of the worlds.
std::uint32_t events_of_a_world() {
  const char* depth = std::getenv("LOCI_WORLD_DEPTH");
  if (depth != nullptr) return static_cast<std::uint32_t>(std::atoi(depth));
  return kSanitized ? 3 : 4;
}

// How many worlds there were; `digest` becomes that of all their plans, `ends_loaded` grows by what they
// loaded of partial blocks.
std::uint64_t run_all(CoreWorldOptions options, std::uint64_t& digest, std::uint64_t* ends_loaded = nullptr) {
  Enumeration enumeration;
  std::uint64_t worlds = 0;
  do {
    const WorldHistory history = World(options, enumeration.chooser()).run();
    digest = mix64(digest ^ history.digest);
    if (ends_loaded != nullptr) *ends_loaded += history.ends_loaded;
    ++worlds;
  } while (enumeration.advance());
  return worlds;
}

TEST(CoreExhaustive, EverySmallWorldKeepsItsPromises) {
  CoreWorldOptions options;
  options.events = events_of_a_world();
  options.vocabulary = 2;
  options.live_max = 4;
  options.new_tokens_max = 3;
  options.prompts = {letters(1, 0), letters(31, 1), letters(33, 0), letters(40, 24), letters(32, 31)};
  std::uint64_t worlds = 0, digest = 0;
  for (const std::uint32_t blocks : {1u, 2u, 3u, 5u}) {
    for (const char* eviction : {"lru", "fifo", "random"}) {
      for (const std::uint32_t batch : {5u, 100u}) {
        options.config.groups = {{.window = 0, .block_count = blocks}};
        options.config.layers = 1;
        options.config.context_tokens = blocks * kBlockTokens;
        options.config.max_batch_tokens = batch;
        options.config.max_queued = 4;
        options.config.eviction = eviction;
        worlds += run_all(options, digest);
      }
    }
  }
  EXPECT_GT(worlds, kSanitized ? 500u : 10'000u);
  std::printf("%llu worlds, digest of all plans: %016llx\n", (unsigned long long)worlds,
              (unsigned long long)digest);
}

TEST(CoreExhaustive, EverySmallWorldWithWindowsKeepsItsPromises) {
  CoreWorldOptions options;
  options.events = events_of_a_world();
  options.vocabulary = 2;
  options.live_max = 4;
  options.new_tokens_max = 3;
  options.prompts = {letters(33, 0), letters(70, 30), letters(70, 31), letters(120, 0), letters(64, 36)};
  options.config.layers = 1;
  options.config.context_tokens = 4 * kBlockTokens;
  options.config.max_queued = 4;
  const std::vector<std::vector<CoreGroup>> models = {
      {{0, 4}, {32, 2}}, {{0, 6}, {33, 4}}, {{32, 2}}, {{40, 3}}, {{0, 5}, {64, 3}, {20, 2}}};
  std::uint64_t worlds = 0, digest = 0;
  for (const std::vector<CoreGroup>& groups : models) {
    for (const std::uint32_t batch : {7u, 100u}) {
      options.config.groups = groups;
      options.config.max_batch_tokens = batch;
      options.config.eviction = batch == 7 ? "lru" : "random";
      worlds += run_all(options, digest);
    }
  }
  EXPECT_GT(worlds, kSanitized ? 500u : 10'000u);
  std::printf("%llu worlds, digest of all plans: %016llx\n", (unsigned long long)worlds,
              (unsigned long long)digest);
}

// The same with passes ahead, which the device computes as late as it may.
TEST(CoreExhaustive, EverySmallWorldWithPassesAheadKeepsItsPromises) {
  CoreWorldOptions options;
  options.events = events_of_a_world();
  options.vocabulary = 2;
  options.live_max = 4;
  options.new_tokens_max = 4;
  options.prompts = {letters(1, 0), letters(31, 1), letters(33, 0), letters(40, 24), letters(32, 30)};
  options.config.layers = 1;
  options.config.max_queued = 4;
  options.config.passes_ahead = 1;
  std::uint64_t worlds = 0, digest = 0;
  const std::vector<std::vector<CoreGroup>> models = {{{0, 1}}, {{0, 3}}, {{0, 4}, {32, 2}}, {{32, 3}}};
  for (const std::vector<CoreGroup>& groups : models) {
    for (const std::uint32_t batch : {5u, 100u}) {
      options.config.groups = groups;
      options.config.context_tokens = groups.front().block_count * kBlockTokens;
      options.config.max_batch_tokens = batch;
      options.config.eviction = batch == 5 ? "lru" : "random";
      worlds += run_all(options, digest);
    }
  }
  EXPECT_GT(worlds, kSanitized ? 500u : 10'000u);
  std::printf("%llu worlds, digest of all plans: %016llx\n", (unsigned long long)worlds,
              (unsigned long long)digest);
}

// Turns that go on from one another or part inside a block, and processes that end.
CoreWorldOptions disk_worlds() {
  CoreWorldOptions options;
  options.events = events_of_a_world() + 3;
  options.vocabulary = 2;
  options.live_max = 3;
  options.new_tokens_max = 1;
  options.cancels = false;
  options.restarts = true;
  options.prompts = {letters(40, 0), letters(40, 30), letters(36, 1)};
  options.config.layers = 1;
  options.config.max_queued = 4;
  options.config.hole_records = 4;
  options.config.max_batch_tokens = 100;
  options.config.eviction = "lru";
  return options;
}

// The ends of sequences: kept on the disk, gone on from, parted from, and found by another process.
TEST(CoreExhaustive, EverySmallWorldWithADiskKeepsItsPromises) {
  CoreWorldOptions options = disk_worlds();
  std::uint64_t worlds = 0, digest = 0, ends_loaded = 0;
  for (const std::uint32_t blocks : {3u, 6u}) {
    for (const std::uint32_t disk : {2u, 12u}) {
      if (kSanitized && (blocks != 6 || disk != 12)) continue;
      options.config.groups = {
          {.window = 0, .block_count = blocks, .disk_blocks = disk, .block_bytes = 1000}};
      options.config.context_tokens = blocks * kBlockTokens;
      worlds += run_all(options, digest, &ends_loaded);
    }
  }
  EXPECT_GT(ends_loaded, kSanitized ? 5u : 100u);
  EXPECT_GT(worlds, kSanitized ? 500u : 10'000u);
  std::printf("%llu worlds, digest of all plans: %016llx\n", (unsigned long long)worlds,
              (unsigned long long)digest);
}

// The same in models with windows, where an end is of use only with what its next token sees.
TEST(CoreExhaustive, EverySmallWorldWithWindowsAndADiskKeepsItsPromises) {
  CoreWorldOptions options = disk_worlds();
  std::uint64_t worlds = 0, digest = 0, ends_loaded = 0;
  for (const std::uint32_t blocks : {3u, 6u}) {
    for (const std::uint32_t disk : {2u, 12u}) {
      if (kSanitized && (blocks != 6 || disk != 12)) continue;
      options.config.groups = {
          {.window = 0, .block_count = blocks, .disk_blocks = disk, .block_bytes = 1000},
          {.window = 34, .block_count = blocks, .disk_blocks = disk, .block_bytes = 1000}};
      options.config.context_tokens = blocks * kBlockTokens;
      worlds += run_all(options, digest, &ends_loaded);
    }
  }
  EXPECT_GT(ends_loaded, kSanitized ? 5u : 100u);
  EXPECT_GT(worlds, kSanitized ? 500u : 10'000u);
  std::printf("%llu worlds, digest of all plans: %016llx\n", (unsigned long long)worlds,
              (unsigned long long)digest);
}

// Two tenants and a public prefix whose last block is partial.
TEST(CoreExhaustive, EverySmallWorldWithAPublicPrefixKeepsItsPromises) {
  CoreWorldOptions options;
  options.events = events_of_a_world();
  options.vocabulary = 2;
  options.live_max = 4;
  options.new_tokens_max = 3;
  options.cancels = false;
  options.public_prompt = letters(40, 8);
  options.prompts = {letters(40, 9), letters(33, 0), letters(31, 2), letters(40, 30)};
  options.config.layers = 1;
  options.config.max_queued = 4;
  std::uint64_t worlds = 0, digest = 0;
  const std::vector<std::vector<CoreGroup>> models = {{{0, 4}}, {{0, 7}}, {{0, 8}, {40, 7}}};
  for (const std::vector<CoreGroup>& groups : models) {
    for (const std::uint32_t batch : {9u, 100u}) {
      options.config.groups = groups;
      options.config.context_tokens = groups.front().block_count * kBlockTokens;
      options.config.max_batch_tokens = batch;
      options.config.eviction = batch == 9 ? "lru" : "random";
      worlds += run_all(options, digest);
    }
  }
  EXPECT_GT(worlds, kSanitized ? 250u : 5'000u);
  std::printf("%llu worlds, digest of all plans: %016llx\n", (unsigned long long)worlds,
              (unsigned long long)digest);
}

}  // namespace
}  // namespace loci
