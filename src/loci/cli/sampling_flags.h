// SPDX-License-Identifier: Apache-2.0
// What the flags of sampling say, apart from all others.
#pragma once

#include <cstdint>
#include <optional>

namespace loci {

// How tokens are drawn where a request does not say; absent: as the model's makers say.
struct SamplingFlags {
  std::optional<float> temperature, top_p, min_p, repeat_penalty;
  std::optional<std::uint32_t> top_k;
};

}  // namespace loci
