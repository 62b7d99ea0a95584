// SPDX-License-Identifier: Apache-2.0
// What activations, weights that are not quantised and the state are held in.
#pragma once

#include <cstdint>

namespace loci::cuda {

enum class ElementType : std::uint8_t { kHalf, kBFloat16 };

}  // namespace loci::cuda
