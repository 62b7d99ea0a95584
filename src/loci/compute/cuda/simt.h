// SPDX-License-Identifier: Apache-2.0
// The language that kernels are written in: CUDA's own names, as far as the simulated device knows them, and
// one function for each operation that needs inline assembly. A kernel uses nothing beyond this header, so
// that the same source runs on a GPU (nvcc) and on the simulated device (g++, simulated/simt.h).
//
// CUDA's own, on both: __global__, __device__, __forceinline__, __launch_bounds__, __restrict__, threadIdx,
// blockIdx, blockDim, gridDim (.x .y .z), __syncthreads(), __syncwarp(), __shfl_sync, __shfl_xor_sync,
// __shfl_up_sync, __ballot_sync, __any_sync (of whole warps: mask ~0u), atomicAdd (int, unsigned, unsigned
// long long, float), __threadfence(), __ldg, float2, float4, uint2, uint4 with make_*, __float_as_uint,
// __uint_as_float, __popc, __ffs, __fdividef, and the float functions of <cmath> by their C names (fmaf,
// exp2f, expf, logf, tanhf, erff, fminf, fmaxf, ...).
//
// Shared memory is dynamic: shared_memory<T>() is its begin (LaunchShape::shared_bytes), aligned to 128
// bytes, and holds NaNs at the begin of a block on the simulated device. No __shared__ variables, no static
// ones.
//
// Half and BFloat16 are 16 bits each; arithmetic is in float.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define LOCI_DEVICE __device__ __forceinline__
#define LOCI_HOST_DEVICE __host__ __device__ __forceinline__
#else
#include "loci/compute/cuda/simulated/simt.h"
#endif

namespace loci::cuda {

struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};
static_assert(sizeof(Half) == 2 && sizeof(BFloat16) == 2);

#ifdef __CUDACC__

template <class T>
LOCI_DEVICE T* shared_memory() {
  extern __shared__ __align__(128) unsigned char loci_shared_bytes[];
  return reinterpret_cast<T*>(loci_shared_bytes);
}

LOCI_DEVICE float to_float(Half v) { return __half2float(__ushort_as_half(v.bits)); }
LOCI_DEVICE float to_float(BFloat16 v) { return __uint_as_float(static_cast<unsigned>(v.bits) << 16); }
LOCI_DEVICE float to_float(float v) { return v; }
// Rounds to nearest, ties to even.
template <class T>
LOCI_DEVICE T from_float(float v);
template <>
LOCI_DEVICE Half from_float<Half>(float v) {
  return {__half_as_ushort(__float2half_rn(v))};
}
template <>
LOCI_DEVICE BFloat16 from_float<BFloat16>(float v) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(v))};
}
template <>
LOCI_DEVICE float from_float<float>(float v) {
  return v;
}

// Returns `v` and hides its value from the compiler, so that values derived from it are computed where they
// are used, not ahead.
LOCI_DEVICE unsigned opaque(unsigned v) {
  asm volatile("" : "+r"(v));
  return v;
}

// 2^v, flushing denormals; within 2 ulp.
LOCI_DEVICE float exp2_fast(float v) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
  return result;
}

// --- tensor cores: all 32 lanes of a warp together; fragments as the PTX manual's tables of m16n8k16 ---

// d[16][8] += a[16][16] * b[16][8]; a row-major, b column-major, float32 sums.
// Lane l, g = l / 4, t = l % 4: a[0]: (g, 2t..), a[1]: (g + 8, 2t..), a[2]: (g, 2t + 8..), a[3]: (g + 8,
// 2t + 8..); b[0]: (k 2t.., n g), b[1]: (k 2t + 8.., n g); d[0], d[1]: (g, 2t..), d[2], d[3]: (g + 8, 2t..).
template <class T>
LOCI_DEVICE void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
template <>
LOCI_DEVICE void mma_16x8x16<Half>(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
LOCI_DEVICE void mma_16x8x16<BFloat16>(float (&d)[4], const std::uint32_t (&a)[4],
                                       const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8x8 matrices of 16-bit values from shared memory: lanes 8i .. 8i + 7 name the rows (16 bytes each,
// aligned) of matrix i; lane l gets values 2(l % 4), 2(l % 4) + 1 of row l / 4 of each.
LOCI_DEVICE void load_matrix_x4(std::uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
// The same with each matrix transposed: lane l gets rows 2(l % 4), 2(l % 4) + 1 of column l / 4.
LOCI_DEVICE void load_matrix_x4_transposed(std::uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// --- asynchronous copies to shared memory, 16 bytes each, both ends aligned ---

// Begins to copy 16 bytes to shared memory; if not `valid`, writes zeros and does not read `from`. The thread
// sees them after copy_async_wait(), other threads after a further barrier.
LOCI_DEVICE void copy_async_16(void* to, const void* from, bool valid = true) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
LOCI_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `Groups` of the thread's committed groups are still being copied.
template <int Groups>
LOCI_DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}

// Reads data that is used only once, so that it takes little room in caches.
LOCI_DEVICE uint4 load_once(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

// --- kernels that begin early: on Hopper a kernel's blocks may start while the one before it still runs ---

// Lets the next kernel of the stream start its blocks, once all blocks of this kernel have come here or
// ended.
LOCI_DEVICE void release_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Waits until all kernels before this one have ended and their writes are visible. Before it a thread may
// only read what no kernel of the pass writes (weights, descriptors), and only write shared memory. In every
// block at least one thread must call it. Else the kernel could end before earlier kernels, and a later
// kernel that waits only for this one would begin too early.
LOCI_DEVICE void await_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#else  // the simulated device

LOCI_DEVICE void release_next() {}
LOCI_DEVICE void await_previous() { simulated::await_previous(); }

#endif  // __CUDACC__

// The beginning of a kernel that does no work ahead.
LOCI_DEVICE void follow_previous() {
  release_next();
  await_previous();
}

LOCI_DEVICE unsigned lane_id() { return threadIdx.x % 32; }
LOCI_DEVICE unsigned warp_id() { return threadIdx.x / 32; }

// Two values in one register, the first in the lower half.
template <class T>
LOCI_DEVICE std::uint32_t pack2(float low, float high) {
  return static_cast<std::uint32_t>(from_float<T>(low).bits) |
         static_cast<std::uint32_t>(from_float<T>(high).bits) << 16;
}
template <class T>
LOCI_DEVICE float2 unpack2(std::uint32_t both) {
  return make_float2(to_float(T{static_cast<std::uint16_t>(both & 0xffffu)}),
                     to_float(T{static_cast<std::uint16_t>(both >> 16)}));
}

// The sum over the 32 lanes of a warp in a fixed order; every lane gets the same bits.
LOCI_DEVICE float warp_sum(float v) {
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}
LOCI_DEVICE float warp_max(float v) {
  for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, offset));
  return v;
}

}  // namespace loci::cuda
