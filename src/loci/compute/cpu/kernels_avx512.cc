// The kernels for AVX-512 with VNNI.
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "loci/compute/cpu/kernel_table.h"
#include "loci/model/tensor.h"

namespace loci {
namespace {
namespace avx512 {

#define LOCI_ISA_AVX512
constexpr int kTileRows = 8;      // activation rows that share one read of weights
constexpr int kAttendRows = 6;    // query rows that share one read of keys
constexpr int kValueVectors = 4;  // vectors of a head's dimensions that are summed together

#include "loci/compute/cpu/simd.inl"
#include "loci/compute/cpu/linear.inl"
#include "loci/compute/cpu/attention.inl"
#include "loci/compute/cpu/elementwise.inl"

}  // namespace avx512
}  // namespace

const KernelTable* avx512_kernels() {
  static const bool runs = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                           __builtin_cpu_supports("avx512vnni");
  return runs ? avx512::table("avx512") : nullptr;
}

}  // namespace loci
