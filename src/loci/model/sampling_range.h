// SPDX-License-Identifier: Apache-2.0
// The ranges of the numbers that say how a token is drawn. Requests, model files and the operator's options
// are all held to them.
#pragma once

#include "loci/base/number_range.h"

namespace loci {

inline constexpr NumberRange kTemperatureRange{.low = 0, .high = 100};
inline constexpr NumberRange kTopPRange{.low = 0, .high = 1, .low_excluded = true};
inline constexpr NumberRange kMinPRange{.low = 0, .high = 1};
inline constexpr NumberRange kRepetitionPenaltyRange{.low = 0, .high = 100, .low_excluded = true};
// frequency_penalty and presence_penalty.
inline constexpr NumberRange kPenaltyRange{.low = -2, .high = 2};

}  // namespace loci
