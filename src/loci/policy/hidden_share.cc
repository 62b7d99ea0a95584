// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/hidden_share.h"

#include <algorithm>

namespace loci {

std::uint32_t hidden_share_percent(const CostModel& costs, std::uint64_t kv_bytes,
                                   std::uint64_t hidden_bytes) {
  using Wide = unsigned __int128;
  const Nanos project = costs.project_block();
  if (project == 0 || hidden_bytes >= kv_bytes) return 0;
  const Nanos latency = costs.load(Tier::kDisk, 0);
  const Nanos kv = costs.load(Tier::kDisk, kv_bytes) - latency;
  const Nanos hidden = costs.load(Tier::kDisk, hidden_bytes) - latency;
  if (project <= hidden) return 10 * Wide(hidden) <= 9 * Wide(kv) ? 100 : 0;
  const auto percent = static_cast<std::uint32_t>(Wide(100) * kv / (Wide(kv) + project - hidden));
  // Of a hundred blocks, with so many hidden.
  const Wide link = Wide(percent) * hidden + Wide(100 - percent) * kv;
  return 10 * std::max(link, Wide(percent) * project) <= 9 * Wide(100) * kv ? percent : 0;
}

std::uint64_t hidden_pays_below(const CostModel& costs, std::uint64_t kv_bytes) {
  const Nanos project = costs.project_block();
  if (project == 0) return 0;
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(kv_bytes) * kNanosPerSecond / project);
}

}  // namespace loci
