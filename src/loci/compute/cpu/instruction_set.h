// SPDX-License-Identifier: Apache-2.0
// Which kernels this machine can run.
#pragma once

#include "loci/compute/cpu/cpu_backend.h"
#include "loci/compute/cpu/kernel_table.h"

namespace loci::cpu {

bool machine_has(InstructionSet set);
// The machine must have `set`.
const KernelTable& kernels_of(InstructionSet set);

}  // namespace loci::cpu
