// SPDX-License-Identifier: Apache-2.0
// Kernels of Q6_K matrices.
#include "loci/compute/cuda/products/launchers.h"

namespace loci::cuda {

const ProductLaunchers kQ6_KProducts[2] = {launchers_of<MatrixFormat::kQ6_K, Half>(),
                                           launchers_of<MatrixFormat::kQ6_K, BFloat16>()};

}  // namespace loci::cuda
