// SPDX-License-Identifier: Apache-2.0
// Kernels of Q4_1 matrices.
#include "loci/compute/cuda/products/launchers.h"

namespace loci::cuda {

const ProductLaunchers kQ4_1Products[2] = {launchers_of<MatrixFormat::kQ4_1, Half>(),
                                           launchers_of<MatrixFormat::kQ4_1, BFloat16>()};

}  // namespace loci::cuda
