// SPDX-License-Identifier: Apache-2.0
// A format's row of the table of launchers (product_kernels.h).
#pragma once

#include "loci/compute/cuda/products/decode_rows.h"
#include "loci/compute/cuda/products/few_rows.h"
#include "loci/compute/cuda/products/many_rows.h"
#include "loci/compute/cuda/products/warpgroup_rows.h"

namespace loci::cuda {

template <MatrixFormat F, class T>
constexpr ProductLaunchers launchers_of() {
  ProductLaunchers launchers{.few = launch_few_rows<F, T>,
                             .many16 = launch_many_rows<F, T, 16>,
                             .many32 = launch_many_rows<F, T, 32>,
                             .many64 = launch_many_rows<F, T, 64>,
                             .many128 = launch_many_rows<F, T, 128>};
  if constexpr (is_packed(F)) {
    launchers.decode = launch_decode_rows<F, T>;
    launchers.warpgroup64 = launch_warpgroup_rows<F, T, 64>;
    launchers.warpgroup128 = launch_warpgroup_rows<F, T, 128>;
  }
  return launchers;
}

}  // namespace loci::cuda
