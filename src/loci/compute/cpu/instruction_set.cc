#include "loci/compute/cpu/instruction_set.h"

#include "loci/base/check.h"

namespace loci {

std::string_view instruction_set_name(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPlain: return "plain";
    case InstructionSet::kAvx2: return "avx2";
    case InstructionSet::kAvx512: return "avx512";
  }
  return "unknown";
}

std::vector<InstructionSet> available_instruction_sets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set : {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (cpu::machine_has(set)) sets.push_back(set);
  }
  return sets;
}

namespace cpu {

bool machine_has(InstructionSet set) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  switch (set) {
    case InstructionSet::kPlain: return true;
    case InstructionSet::kAvx2: return avx2;
    case InstructionSet::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512vnni");
  }
  return false;
#else
  return set == InstructionSet::kPlain;
#endif
}

const KernelTable& kernels_of(InstructionSet set) {
  LOCI_CHECK(machine_has(set), "kernels of an instruction set that the machine lacks");
#if defined(__x86_64__)
  if (set == InstructionSet::kAvx512) return avx512_kernels();
  if (set == InstructionSet::kAvx2) return avx2_kernels();
#endif
  return plain_kernels();
}

}  // namespace cpu
}  // namespace loci
