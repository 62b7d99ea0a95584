// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/share_follower.h"

#include <algorithm>

#include "loci/compute/backend.h"

namespace loci {
namespace {

// Loads and passes of these sizes say what the corrections make of the measured costs.
constexpr std::uint64_t kBlocksLoaded = 64;
constexpr std::uint32_t kTokensComputed = 1024;

// `measured` · `now` / `before`.
Nanos as_much_as(Nanos measured, Nanos now, Nanos before) {
  if (before <= 0) return measured;
  return static_cast<Nanos>(std::min<__int128>(__int128{measured} * now / before, kCostMax));
}

}  // namespace

CostCurves ShareFollower::corrected() const {
  CostCurves curves = costs_.curves();
  const std::uint64_t bytes = kBlocksLoaded * config_.groups.front().block_bytes;
  const Nanos latency = transfers_.load_time(LoadLink::kDisk, 0);
  const Nanos moving = std::max<Nanos>(transfers_.load_time(LoadLink::kDisk, bytes) - latency, 1);
  curves.disk_read.latency = latency;
  curves.disk_read.bytes_per_second = static_cast<std::uint64_t>(std::clamp<unsigned __int128>(
      static_cast<unsigned __int128>(bytes) * kNanosPerSecond / static_cast<unsigned __int128>(moving), 1,
      UINT64_MAX));
  curves.projection = pass_times_.project_block() / kBlockTokens;
  const Nanos measured = costs_.compute(0, kTokensComputed), now = pass_times_.compute(0, kTokensComputed);
  for (Nanos* cost : {&curves.token, &curves.pass}) *cost = as_much_as(*cost, now, measured);
  for (Nanos& cost : curves.attention) cost = as_much_as(cost, now, measured);
  return curves;
}

std::optional<HiddenShare> ShareFollower::choose(Nanos now) {
  if (!config_.hidden.follows || config_.hidden.disk_blocks == 0) return std::nullopt;
  loads_then_ = transfers_.disk_loads();
  chosen_at_ = now;
  const HiddenShare before = transfers_.hidden_share();
  const HiddenShare next = next_hidden_share(CostModel(corrected()), config_.groups.front().block_bytes,
                                             config_.hidden.block_bytes, before);
  if (next == before) return std::nullopt;
  transfers_.set_hidden_share(next);
  return next;
}

std::optional<HiddenShare> ShareFollower::look(Nanos now) {
  const std::uint64_t loads = transfers_.disk_loads() - loads_then_;
  if (loads == 0 || (loads < kLoadsApart && now - chosen_at_ < kTimeApart)) return std::nullopt;
  return choose(now);
}

}  // namespace loci
