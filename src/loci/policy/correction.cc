// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/correction.h"

#include <algorithm>

#include "loci/policy/cost_model.h"

namespace loci {

using Wide = unsigned __int128;

void Correction::observe(Nanos predicted, Nanos took) {
  if (predicted <= 0) return;
  const Wide ratio = static_cast<Wide>(std::max<Nanos>(took, 0)) * kOne / static_cast<Wide>(predicted);
  ratios_[seen_++ % kObservations] =
      std::max(static_cast<std::uint32_t>(std::min<Wide>(ratio, kRatioMax)), kRatioMin);
  std::array<std::uint32_t, kObservations> sorted = ratios_;
  const std::size_t last = std::min(seen_, kObservations) - 1;
  std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(last + 1));
  ratio_ = sorted[last / 2];
  high_ = sorted[last * 3 / 4];
}

Nanos Correction::times(Nanos predicted, std::uint32_t ratio) {
  const Wide corrected = static_cast<Wide>(std::max<Nanos>(predicted, 0)) * ratio / kOne;
  return static_cast<Nanos>(std::min<Wide>(corrected, kCostMax));
}

}  // namespace loci
