// SPDX-License-Identifier: Apache-2.0
// Which kernels there are, and which this machine can run.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "loci/compute/cpu/kernel_table.h"

namespace loci {

// The instruction sets that kernels are compiled for. kPlain is portable code, which defines the results of
// all others. kAmx is AVX-512 with products of 32 rows and more by AMX; kNeon needs the instructions for dot
// products.
enum class InstructionSet : std::uint8_t { kPlain, kAvx2, kAvx512, kAmx, kNeon };

std::string_view instruction_set_name(InstructionSet set);
// The sets that this machine can run, best last.
std::vector<InstructionSet> available_instruction_sets();

namespace cpu {

bool machine_has(InstructionSet set);
// The machine must have `set`.
const KernelTable& kernels_of(InstructionSet set);

}  // namespace cpu
}  // namespace loci
