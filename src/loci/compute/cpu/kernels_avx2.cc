// The kernels for AVX2 with FMA and F16C.
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "loci/compute/cpu/kernel_table.h"
#include "loci/model/tensor.h"

namespace loci {
namespace {
namespace avx2 {

#define LOCI_ISA_AVX2
constexpr int kTileRows = 4;      // activation rows that share one read of weights
constexpr int kAttendRows = 4;    // query rows that share one read of keys
constexpr int kValueVectors = 1;  // vectors of a head's dimensions that are summed together

#include "loci/compute/cpu/simd.inl"
#include "loci/compute/cpu/linear.inl"
#include "loci/compute/cpu/attention.inl"
#include "loci/compute/cpu/elementwise.inl"

}  // namespace avx2
}  // namespace

const KernelTable* avx2_kernels() {
  static const bool runs = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                           __builtin_cpu_supports("f16c");
  return runs ? avx2::table("avx2") : nullptr;
}

}  // namespace loci
