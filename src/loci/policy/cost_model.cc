// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/cost_model.h"

#include <algorithm>
#include <bit>

#include "loci/compute/backend.h"

namespace loci {
namespace {

using Wide = unsigned __int128;

Nanos cut(Wide cost) { return static_cast<Nanos>(std::min<Wide>(cost, kCostMax)); }

Wide wide(Nanos cost) { return static_cast<Wide>(cost); }

LinkCost possible(LinkCost link) {
  return {std::clamp<Nanos>(link.latency, 0, kCostMax), std::max<std::uint64_t>(link.bytes_per_second, 1)};
}

Nanos transfer(const LinkCost& link, std::uint64_t bytes) {
  return cut(wide(link.latency) + Wide{bytes} * kNanosPerSecond / link.bytes_per_second);
}

}  // namespace

CostModel::CostModel(CostCurves curves) : curves_(std::move(curves)) {
  curves_.token = std::clamp<Nanos>(curves_.token, 0, kCostMax);
  curves_.pass = std::clamp<Nanos>(curves_.pass, 0, kCostMax);
  curves_.projection = std::clamp<Nanos>(curves_.projection, 0, kCostMax / kBlockTokens);
  curves_.host_charge = std::clamp<Nanos>(curves_.host_charge, 0, kCostMax);
  curves_.disk_charge = std::clamp<Nanos>(curves_.disk_charge, 0, kCostMax);
  if (curves_.attention.empty()) curves_.attention = {0};
  if (curves_.attention.size() > 32) curves_.attention.resize(32);  // contexts are below 2^32
  Nanos most = 0;
  for (Nanos& cost : curves_.attention) cost = most = std::clamp<Nanos>(cost, most, kCostMax);
  for (LinkCost* link : {&curves_.host_load, &curves_.host_save, &curves_.disk_read, &curves_.disk_write,
                         &curves_.shared_read}) {
    *link = possible(*link);
  }
}

Nanos CostModel::attention(std::uint32_t before) const {
  const std::vector<Nanos>& at = curves_.attention;
  if (before == 0) return 0;
  const auto power = static_cast<std::size_t>(std::bit_width(before) - 1);
  const std::size_t last = at.size() - 1;
  if (power >= last) return cut((wide(at[last]) * before) >> last);
  const Wide low = Wide{1} << power;
  return at[power] + cut((wide(at[power + 1] - at[power]) * (before - low)) >> power);
}

// Between powers of two the curve is straight, so the sum over such a piece is that of its ends.
Nanos CostModel::compute(std::uint32_t begin, std::uint32_t count) const {
  const std::uint64_t end = std::min<std::uint64_t>(std::uint64_t{begin} + count, UINT32_MAX);
  Wide sum = wide(curves_.token) * count;
  std::uint64_t from = std::max<std::uint64_t>(begin, 1);  // a token with none before it attends to nothing
  while (from < end) {
    const std::uint64_t to = std::min(end, std::uint64_t{1} << std::bit_width(from));
    const Wide ends = wide(attention(static_cast<std::uint32_t>(from))) +
                      wide(attention(static_cast<std::uint32_t>(to - 1)));
    sum += ends * (to - from) / 2;
    from = to;
  }
  return cut(sum);
}

Nanos CostModel::pass(std::uint32_t rows, std::uint64_t context) const {
  if (rows == 0) return 0;
  const auto mean = static_cast<std::uint32_t>(std::min<std::uint64_t>(context / rows, UINT32_MAX));
  return cut(std::max(wide(curves_.pass), wide(curves_.token) * rows) + wide(attention(mean)) * rows);
}

Nanos CostModel::load(Tier from, std::uint64_t bytes) const {
  if (from == Tier::kDevice) return 0;
  if (from == Tier::kShared) return transfer(curves_.shared_read, bytes);
  return transfer(from == Tier::kHost ? curves_.host_load : curves_.disk_read, bytes);
}

Nanos CostModel::project_block() const { return curves_.projection * kBlockTokens; }

Nanos CostModel::load_charge(Tier from, std::uint64_t bytes) const {
  if (from == Tier::kDevice) return 0;
  return cut((wide(from == Tier::kHost ? curves_.host_charge : curves_.disk_charge) * bytes) >> 20);
}

Nanos CostModel::save(Tier to, std::uint64_t bytes) const {
  if (to == Tier::kDevice) return 0;
  return transfer(to == Tier::kHost ? curves_.host_save : curves_.disk_write, bytes);
}

}  // namespace loci
