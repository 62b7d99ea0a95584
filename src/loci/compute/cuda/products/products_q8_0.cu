// SPDX-License-Identifier: Apache-2.0
// Kernels of Q8_0 matrices.
#include "loci/compute/cuda/products/launchers.h"

namespace loci::cuda {

const ProductLaunchers kQ8_0Products[2] = {launchers_of<MatrixFormat::kQ8_0, Half>(),
                                           launchers_of<MatrixFormat::kQ8_0, BFloat16>()};

}  // namespace loci::cuda
