// SPDX-License-Identifier: Apache-2.0
// The formats of matrices in device memory (matrix.h).
#pragma once

#include <cstdint>

namespace loci::cuda {

enum class MatrixFormat : std::uint8_t { kHalf, kBFloat16, kQ8_0, kQ4_0, kQ4_1, kQ4_K, kQ6_K };

constexpr bool is_packed(MatrixFormat format) { return format >= MatrixFormat::kQ8_0; }

}  // namespace loci::cuda
