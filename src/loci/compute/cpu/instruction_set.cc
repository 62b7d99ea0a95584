// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/instruction_set.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <cstring>

#include "loci/base/check.h"
#include "loci/base/random.h"

namespace loci {

std::string_view instruction_set_name(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPlain: return "plain";
    case InstructionSet::kAvx2: return "avx2";
    case InstructionSet::kAvx512: return "avx512";
    case InstructionSet::kAmx: return "amx";
    case InstructionSet::kNeon: return "neon";
  }
  return "unknown";
}

std::vector<InstructionSet> available_instruction_sets() {
  std::vector<InstructionSet> sets;
  // AMX stands before AVX-512, which is as fast where both were measured (docs/numerics.md): whoever wants it
  // names it.
  for (const InstructionSet set : {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAmx,
                                   InstructionSet::kAvx512, InstructionSet::kNeon}) {
    if (cpu::machine_has(set)) sets.push_back(set);
  }
  return sets;
}

namespace cpu {

namespace {

// LOCI_PLAIN_KERNELS_ALONE: a build that has no others (cmake/LociTargets.cmake).
#if defined(__x86_64__) && !defined(LOCI_PLAIN_KERNELS_ALONE)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

// AMX with bytes, and the system's permission for this process to use it, which Linux wants asked for.
bool may_use_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25, kOsxsave = 1u << 27;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTile) == 0 || (d & kInt8) == 0) return false;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsxsave) == 0) return false;
  unsigned low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 3u << 17;  // the system saves tiles' configuration and data
  if ((low & kTileState) != kTileState) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Whether AMX gives the bits that AVX-512 gives, for one product of random bytes with every row count: its
// machine code has not run on real hardware during development (tiles_machine.inl), so it must show itself.
bool amx_is_right() {
  constexpr std::uint32_t kColumns = 256, kBlocks = kColumns / kQuantBlock;
  constexpr auto kType = static_cast<std::size_t>(PackedType::kQ6_K);
  constexpr std::uint16_t kOne = 0x3c00;
  Random random(1);
  std::vector<std::uint8_t> weights(kPackedStepBytes[kType]);
  for (std::uint8_t& byte : weights) byte = static_cast<std::uint8_t>(random.next());
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    std::memcpy(weights.data() + weights.size() - 2 * kLanes + 2 * lane, &kOne, sizeof kOne);
  }
  for (std::uint32_t rows = kWideTileRows; rows <= kMaxTileRows; ++rows) {
    std::vector<std::uint8_t> wide(std::size_t{kBlocks} * kTileBlockBytes * rows), one(wide.size() / rows);
    std::vector<float> x(kColumns), found(std::size_t{rows} * kLanes), expected(found.size());
    for (std::uint32_t row = 0; row < rows; ++row) {
      for (float& value : x) value = static_cast<float>(random.unit() - 0.5);
      avx512_kernels().quantize(x.data(), kBlocks, wide.data(), rows, row);
      avx512_kernels().quantize(x.data(), kBlocks, one.data(), 1, 0);
      avx512_kernels().product[kType][0](weights.data(), one.data(), 1, expected.data() + row * kLanes);
    }
    amx_kernels().product[kType][rows - 1](weights.data(), wide.data(), 1, found.data());
    if (std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

bool has_amx() {
  static const bool has = has_avx512() && may_use_amx() && amx_is_right();
  return has;
}
#endif

}  // namespace

bool machine_has(InstructionSet set) {
#if defined(LOCI_PLAIN_KERNELS_ALONE)
  return set == InstructionSet::kPlain;
#elif defined(__x86_64__)
  __builtin_cpu_init();
  switch (set) {
    case InstructionSet::kPlain: return true;
    case InstructionSet::kAvx2: return has_avx2();
    case InstructionSet::kAvx512: return has_avx512();
    case InstructionSet::kAmx: return has_amx();
    case InstructionSet::kNeon: return false;
  }
  return false;
#elif defined(__aarch64__)
  constexpr unsigned long kDotProducts = 1ul << 20;  // HWCAP_ASIMDDP
  if (set == InstructionSet::kNeon) return (getauxval(AT_HWCAP) & kDotProducts) != 0;
  return set == InstructionSet::kPlain;
#else
  return set == InstructionSet::kPlain;
#endif
}

const KernelTable& kernels_of(InstructionSet set) {
  LOCI_CHECK(machine_has(set), "kernels of an instruction set that the machine lacks");
#if defined(LOCI_PLAIN_KERNELS_ALONE)
#elif defined(__x86_64__)
  if (set == InstructionSet::kAmx) return amx_kernels();
  if (set == InstructionSet::kAvx512) return avx512_kernels();
  if (set == InstructionSet::kAvx2) return avx2_kernels();
#elif defined(__aarch64__)
  if (set == InstructionSet::kNeon) return neon_kernels();
#endif
  return plain_kernels();
}

}  // namespace cpu
}  // namespace loci
