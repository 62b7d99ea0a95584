// SPDX-License-Identifier: Apache-2.0
// Kernels of Q4_K matrices.
#include "loci/compute/cuda/products/launchers.h"

namespace loci::cuda {

const ProductLaunchers kQ4_KProducts[2] = {launchers_of<MatrixFormat::kQ4_K, Half>(),
                                           launchers_of<MatrixFormat::kQ4_K, BFloat16>()};

}  // namespace loci::cuda
