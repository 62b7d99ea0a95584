// SPDX-License-Identifier: Apache-2.0
// The ranges of the numbers that say how a token is drawn. Requests, model files and the operator's options
// are all held to them.
#pragma once

namespace loci {

struct SamplingRange {
  float low = 0;
  float high = 0;
  bool low_excluded = false;

  // NaN is in no range.
  constexpr bool contains(float value) const {
    return value >= low && value <= high && !(low_excluded && value == low);
  }
};

inline constexpr SamplingRange kTemperatureRange{.low = 0, .high = 100};
inline constexpr SamplingRange kTopPRange{.low = 0, .high = 1, .low_excluded = true};
inline constexpr SamplingRange kMinPRange{.low = 0, .high = 1};
inline constexpr SamplingRange kRepetitionPenaltyRange{.low = 0, .high = 100, .low_excluded = true};

}  // namespace loci
