// SPDX-License-Identifier: Apache-2.0
// What a lookup costs: the keys of a prompt's blocks, and their probes.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "loci/memory/block_index.h"

namespace loci {
namespace {

class NoEviction final : public EvictionOrder {
 public:
  void insert(BlockId, const EvictionFacts&) override { ++size_; }
  void erase(BlockId, const EvictionFacts&) override { --size_; }
  BlockId choose(Nanos) override { return kNoBlock; }
  std::size_t size() const override { return size_; }

 private:
  std::size_t size_ = 0;
};

IndexPools pool_of(std::uint32_t slots) {
  IndexPools pools;
  pools.device.push_back({slots, std::make_unique<NoEviction>(), nullptr});
  return pools;
}

void chain_key(benchmark::State& state) {
  const ChainKeyHasher hasher({}, {});
  const std::vector<TokenId> tokens(kBlockTokens, TokenId(5));
  ChainKey key = hasher.root("g");
  for (auto _ : state) benchmark::DoNotOptimize(key = hasher.child(key, tokens));
}
BENCHMARK(chain_key);

// Probes of the keys of a prompt of `range` tokens, among a hundred thousand blocks.
void lookup(benchmark::State& state) {
  const auto blocks = static_cast<std::size_t>(state.range(0)) / kBlockTokens;
  const ChainKeyHasher hasher({}, {});
  BlockIndex index(pool_of(100'000));
  std::vector<ChainKey> keys;
  std::vector<BlockPin> pins;
  for (std::uint32_t sequence = 0; pins.size() + blocks < 100'000; ++sequence) {
    BlockPin parent = index.open_root(hasher.root("g"));
    BlockId at = parent.block();
    for (std::size_t i = 0; i < blocks; ++i) {
      std::vector<TokenId> tokens(kBlockTokens, TokenId(sequence));
      const ChainKey key = hasher.child(index.block(at).key, tokens);
      BlockPin pin = index.open_full(at, key, tokens);
      index.place(pin, 0);
      const auto token = index.claim(pin.block());
      index.fill(*token, kBlockTokens);
      at = pin.block();
      pins.push_back(std::move(pin));
      if (sequence == 0) keys.push_back(key);
    }
  }
  for (auto _ : state) {
    std::uint32_t found = 0;
    for (const ChainKey& key : keys) found += index.block(index.find(key)).filled;
    benchmark::DoNotOptimize(found);
  }
}
BENCHMARK(lookup)->Arg(512)->Arg(8000);

// The longest run among a node's `range` children.
void match_children(benchmark::State& state) {
  const auto children = static_cast<std::uint32_t>(state.range(0));
  const ChainKeyHasher hasher({}, {});
  BlockIndex index(pool_of(children));
  const BlockPin root = index.open_root(hasher.root("g"));
  std::vector<BlockPin> pins;
  for (std::uint32_t i = 0; i < children; ++i) {
    BlockPin pin = index.open_tail(root.block());
    index.place(pin, 0);
    std::vector<TokenId> tokens(20, TokenId(1));
    tokens[10] = TokenId(i * 2654435761u);
    const auto token = index.claim(pin.block());
    index.append(*token, tokens);
    pins.push_back(std::move(pin));
  }
  std::vector<TokenId> query(kBlockTokens, TokenId(1));
  for (auto _ : state) {
    query[10].value += 7919;
    benchmark::DoNotOptimize(index.match_children(root.block(), query));
  }
}
BENCHMARK(match_children)->Arg(10)->Arg(10'000);

}  // namespace
}  // namespace loci

BENCHMARK_MAIN();
