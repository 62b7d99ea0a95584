// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/hidden_share.h"

#include <algorithm>

#include "loci/compute/backend.h"

namespace loci {

namespace {

using Wide = unsigned __int128;

// Tokens whose mean price is that of a leading block that is computed.
constexpr std::uint32_t kLeadingTokens = 1024;

constexpr std::uint32_t kKeysAndValuesMin = 25;  // percent of the blocks

// What a loaded block occupies.
struct Occupied {
  Nanos link = 0;
  Nanos compute = 0;
};

// A block's time to be restored, where so many of a hundred are hidden, and computing one takes `computed`.
Nanos restored(std::uint32_t percent, const Occupied& hidden, const Occupied& kv, Nanos computed) {
  const auto mean = [percent](Nanos of_hidden, Nanos of_kv) {
    return (Wide(percent) * of_hidden + Wide(100 - percent) * of_kv) / 100;
  };
  const Wide link = mean(hidden.link, kv.link), compute = mean(hidden.compute, kv.compute);
  if (compute >= link) return static_cast<Nanos>(compute);
  return static_cast<Nanos>(Wide(computed) * link / (Wide(computed) + link - compute));
}

}  // namespace

std::uint32_t hidden_share_percent(const CostModel& costs, std::uint64_t kv_bytes,
                                   std::uint64_t hidden_bytes) {
  const Nanos project = costs.project_block();
  if (project == 0 || hidden_bytes >= kv_bytes) return 0;
  const Nanos latency = costs.load(Tier::kDisk, 0);
  const auto load = [&](std::uint64_t bytes) {
    return Occupied{costs.load(Tier::kDisk, bytes) - latency, costs.load_charge(Tier::kDisk, bytes)};
  };
  const Occupied kv = load(kv_bytes);
  Occupied hidden = load(hidden_bytes);
  hidden.compute += project;
  const Nanos computed = costs.compute(0, kLeadingTokens) / (kLeadingTokens / kBlockTokens);
  std::uint32_t best = 0;
  for (std::uint32_t percent = 1; percent <= 100; ++percent) {
    if (restored(percent, hidden, kv, computed) <= restored(best, hidden, kv, computed)) best = percent;
  }
  const Wide with = restored(best, hidden, kv, computed), without = restored(0, hidden, kv, computed);
  return 10 * with <= 9 * without ? best : 0;
}

FormShares form_shares(std::uint32_t hidden_percent) {
  if (hidden_percent == 0) return {};
  return {std::max(100 - hidden_percent, kKeysAndValuesMin), hidden_percent};
}

std::uint64_t hidden_pays_below(const CostModel& costs, std::uint64_t kv_bytes) {
  const Nanos project = costs.project_block();
  if (project == 0) return 0;
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(kv_bytes) * kNanosPerSecond / project);
}

}  // namespace loci
