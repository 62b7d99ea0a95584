// SPDX-License-Identifier: Apache-2.0
// Kernels of Q4_0 matrices.
#include "loci/compute/cuda/products/launchers.h"

namespace loci::cuda {

const ProductLaunchers kQ4_0Products[2] = {launchers_of<MatrixFormat::kQ4_0, Half>(),
                                           launchers_of<MatrixFormat::kQ4_0, BFloat16>()};

}  // namespace loci::cuda
