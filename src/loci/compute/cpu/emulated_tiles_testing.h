// SPDX-License-Identifier: Apache-2.0
// See emulated_tiles_testing.cc. Test code only.
#pragma once

#include "loci/compute/cpu/kernel_table.h"

namespace loci::cpu {

const KernelTable& emulated_tiles_kernels();

}  // namespace loci::cpu
