// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/hidden_share.h"

#include <algorithm>

#include "loci/compute/backend.h"

namespace loci {

namespace {

using Signed = __int128;

// The turn for which a share has to pay: so many blocks come back, and so many tokens are new.
constexpr std::uint32_t kRestoredTokens = 2048, kRestoredBlocks = kRestoredTokens / kBlockTokens;
constexpr std::uint32_t kNewTokens = 64;
// Tokens whose mean price is that of a leading block that is computed.
constexpr std::uint32_t kLeadingTokens = 1024;

// Larger costs count as this, days, so that sums and products of some have room.
constexpr Nanos kCostCounted = Nanos{1} << 48;

// What restoring a block occupies.
struct Occupied {
  Nanos link = 0;
  Nanos compute = 0;
};

struct Costs {
  Occupied hidden, kv;
  Nanos computed = 0;  // computing a block instead of loading it
  Nanos own = 0;       // computing a turn's new tokens

  // The time until so many blocks are there, of which so many are hidden, and `beside` is computed. Leading
  // blocks are computed instead, each of which takes from the link what it adds to computing, until both end
  // together.
  Nanos restored(Signed blocks, Signed hidden_blocks, Nanos beside) const {
    const auto sum = [&](Nanos of_hidden, Nanos of_kv) {
      return hidden_blocks * of_hidden + (blocks - hidden_blocks) * of_kv;
    };
    const Signed link = sum(hidden.link, kv.link), loading = sum(hidden.compute, kv.compute);
    const Signed compute = loading + beside;
    if (compute >= link) return static_cast<Nanos>(compute);
    return static_cast<Nanos>(link - link * (link - compute) / (blocks * computed + link - loading));
  }
  Nanos restored(Signed percent) const { return restored(100, percent, 0); }

  // Of the usual context, how many blocks are hidden where the link and computing end together; `most` at
  // most.
  Signed hidden_blocks(Signed most) const {
    if (hidden.compute <= kv.compute) return most;
    const Signed spare = Signed(kRestoredBlocks) * (kv.link - kv.compute) - own;
    const Signed closer = (kv.link - hidden.link) + (hidden.compute - kv.compute);
    return spare <= 0 ? 0 : std::min(most, spare / closer);
  }
  // The time to the first token behind so many blocks.
  Nanos first_token(const HiddenShare& share, std::uint32_t blocks) const {
    const Signed behind = blocks - std::min(blocks, share.from_block);
    return restored(blocks, behind * share.percent / 100, own);
  }
};

Costs costs_of(const CostModel& costs, std::uint64_t kv_bytes, std::uint64_t hidden_bytes) {
  const auto counted = [](Nanos cost) { return std::min(cost, kCostCounted); };
  const Nanos latency = costs.load(Tier::kDisk, 0);
  const auto load = [&](std::uint64_t bytes) {
    return Occupied{counted(costs.load(Tier::kDisk, bytes) - latency),
                    counted(costs.load_charge(Tier::kDisk, bytes))};
  };
  Occupied hidden = load(hidden_bytes);
  hidden.compute += counted(costs.project_block());
  return {.hidden = hidden,
          .kv = load(kv_bytes),
          .computed = counted(costs.compute(0, kLeadingTokens) / (kLeadingTokens / kBlockTokens)),
          .own = counted(costs.pass(kNewTokens, std::uint64_t{kNewTokens} * kRestoredTokens))};
}

}  // namespace

HiddenShare hidden_share(const CostModel& costs, std::uint64_t kv_bytes, std::uint64_t hidden_bytes) {
  if (costs.project_block() == 0 || hidden_bytes >= kv_bytes) return {};
  const Costs block = costs_of(costs, kv_bytes, hidden_bytes);
  HiddenShare share;
  for (std::uint32_t percent = 1; percent <= 100; ++percent) {
    if (block.restored(percent) <= block.restored(share.percent)) share.percent = percent;
  }
  if (share.percent == 0) return {};
  const Signed hidden = block.hidden_blocks(Signed(kRestoredBlocks) * share.percent / 100);
  HiddenShare behind = share;
  behind.from_block = kRestoredBlocks - static_cast<std::uint32_t>(hidden * 100 / share.percent);
  // Where projecting keeps up with the link, longer contexts are best all hidden.
  const auto turns = [&](const HiddenShare& one) {
    return block.first_token(one, kRestoredBlocks) + block.first_token(one, 2 * kRestoredBlocks);
  };
  if (turns(behind) < turns(share)) share = behind;
  const Signed with = block.first_token(share, kRestoredBlocks),
               without = block.first_token({}, kRestoredBlocks);
  return 10 * with <= 9 * without ? share : HiddenShare{};
}

HiddenShare next_hidden_share(const CostModel& costs, std::uint64_t kv_bytes, std::uint64_t hidden_bytes,
                              const HiddenShare& now) {
  const HiddenShare best = hidden_share(costs, kv_bytes, hidden_bytes);
  if (costs.project_block() == 0) return best;
  const Costs block = costs_of(costs, kv_bytes, hidden_bytes);
  const auto turn = [&](const HiddenShare& share) -> Signed {
    return block.first_token(share, kRestoredBlocks);
  };
  return 10 * turn(best) <= 9 * turn(now) ? best : now;
}

std::uint64_t hidden_pays_below(const CostModel& costs, std::uint64_t kv_bytes) {
  if (costs.project_block() == 0) return 0;
  const Costs block = costs_of(costs, kv_bytes, 0);
  const Signed computing = block.own + Signed(kRestoredBlocks) * block.hidden.compute;
  return static_cast<std::uint64_t>(Signed(kRestoredBlocks) * static_cast<std::int64_t>(kv_bytes) *
                                    kNanosPerSecond / computing);
}

}  // namespace loci
