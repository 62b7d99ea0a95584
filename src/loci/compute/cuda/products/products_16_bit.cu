// SPDX-License-Identifier: Apache-2.0
// Kernels of matrices of elements.
#include "loci/compute/cuda/products/launchers.h"

namespace loci::cuda {

const ProductLaunchers kHalfProducts = launchers_of<MatrixFormat::kHalf, Half>();
const ProductLaunchers kBFloat16Products = launchers_of<MatrixFormat::kBFloat16, BFloat16>();

}  // namespace loci::cuda
