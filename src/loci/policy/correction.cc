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
  find_median();
}

void Correction::find_median() {
  std::array<std::uint32_t, kObservations> sorted = ratios_;
  const std::size_t count = std::min(seen_, kObservations);
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((count - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(count));
  ratio_ = *middle;
}

Nanos Correction::apply(Nanos predicted) const {
  const Wide corrected = static_cast<Wide>(std::max<Nanos>(predicted, 0)) * ratio_ / kOne;
  return static_cast<Nanos>(std::min<Wide>(corrected, kCostMax));
}

}  // namespace loci
