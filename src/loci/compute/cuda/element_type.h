// SPDX-License-Identifier: Apache-2.0
// The type of activations, of weights that are not quantised, and of state.
#pragma once

#include <cstdint>

namespace loci::cuda {

enum class ElementType : std::uint8_t { kHalf, kBFloat16 };

}  // namespace loci::cuda
