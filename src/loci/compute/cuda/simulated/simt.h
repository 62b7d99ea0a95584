// SPDX-License-Identifier: Apache-2.0
// What a kernel sees on the simulated device: CUDA's names for plain C++ (simt.h lists them). Each thread of
// a block is a fiber; blocks run one after the other. A thread runs until it meets others (a barrier, a
// warp's operation) or ends. The next one is drawn at random, so a missing barrier shows. Shared memory
// begins as NaNs. Asynchronous copies arrive no sooner than they are waited for.
//
// Only kernels include this, through compute/cuda/simt.h.
#pragma once

#include <math.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "loci/base/check.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define LOCI_DEVICE inline
#define LOCI_HOST_DEVICE inline

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace loci::cuda::simulated {

struct AsyncCopy {
  void* to;
  const void* from;
  bool valid;
};

// The running thread, in terms of kernels.
struct Lane {
  uint3 thread{}, block{}, block_size{}, grid_size{};
  std::byte* shared = nullptr;
  std::uint32_t shared_bytes = 0;
  std::vector<AsyncCopy> copies;         // those that are not done yet, in order
  std::vector<std::size_t> copy_groups;  // ends of committed groups in `copies`
  // What copies and store_for_products() have written that publish_shared() has not published.
  std::vector<std::span<std::byte>> unpublished;
};
Lane& lane();

enum class Meeting : std::uint8_t { kShuffle, kVote, kMma, kMatrix, kWarp, kProducts };
// Waits for all lanes of the warp. The last one to come calls meet(operands of lanes 0..31).
void meet_warp(Meeting kind, void* operand, void (*meet)(void* const (&operands)[32]));
void meet_block();
void await_previous();
// Checks that `bytes` bytes at `pointer` lie in the block's shared memory.
void check_shared(const void* pointer, std::uint32_t bytes);

template <class T>
struct Shuffle {
  T value;
  unsigned source;
  T result;
};
template <class T>
T shuffle(T value, unsigned source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  Shuffle<T> mine{value, source, value};
  meet_warp(Meeting::kShuffle, &mine, [](void* const(&lanes)[32]) {
    for (void* each : lanes) {
      auto& wanted = *static_cast<Shuffle<T>*>(each);
      wanted.result = static_cast<Shuffle<T>*>(lanes[wanted.source])->value;
    }
  });
  return mine.result;
}
inline unsigned this_lane() { return lane().thread.x % 32; }
void check_whole_warp(unsigned mask);

// A warp's matrix product: m16n8k16 of 16-bit values.
enum class MmaType : std::uint8_t { kHalf, kBFloat16 };
void mma(MmaType type, float* d, const std::uint32_t* a, const std::uint32_t* b);
void load_matrix(std::uint32_t (&r)[4], const void* row, bool transposed);
void wait_copies(std::size_t groups_left);

}  // namespace loci::cuda::simulated

#define threadIdx (::loci::cuda::simulated::lane().thread)
#define blockIdx (::loci::cuda::simulated::lane().block)
#define blockDim (::loci::cuda::simulated::lane().block_size)
#define gridDim (::loci::cuda::simulated::lane().grid_size)

inline void __syncthreads() { loci::cuda::simulated::meet_block(); }
inline void __syncwarp(unsigned mask = ~0u) {
  loci::cuda::simulated::check_whole_warp(mask);
  loci::cuda::simulated::meet_warp(loci::cuda::simulated::Meeting::kWarp, nullptr, [](void* const(&)[32]) {});
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  loci::cuda::simulated::check_whole_warp(mask);
  return loci::cuda::simulated::shuffle(value, static_cast<unsigned>(source) % 32);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  loci::cuda::simulated::check_whole_warp(mask);
  return loci::cuda::simulated::shuffle(value,
                                        loci::cuda::simulated::this_lane() ^ static_cast<unsigned>(lanes));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes) {
  loci::cuda::simulated::check_whole_warp(mask);
  const unsigned mine = loci::cuda::simulated::this_lane();
  return loci::cuda::simulated::shuffle(value, mine >= lanes ? mine - lanes : mine);
}
inline unsigned __ballot_sync(unsigned mask, bool vote) {
  loci::cuda::simulated::check_whole_warp(mask);
  unsigned both[2] = {vote ? 1u : 0u, 0};
  loci::cuda::simulated::meet_warp(loci::cuda::simulated::Meeting::kVote, both, [](void* const(&lanes)[32]) {
    unsigned votes = 0;
    for (int i = 0; i < 32; ++i) votes |= static_cast<unsigned*>(lanes[i])[0] << i;
    for (void* each : lanes) static_cast<unsigned*>(each)[1] = votes;
  });
  return both[1];
}
inline bool __any_sync(unsigned mask, bool vote) { return __ballot_sync(mask, vote) != 0; }

// Blocks and fibers run one at a time, so plain operations are atomic.
template <class T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = static_cast<T>(old + value);
  return old;
}
inline void __threadfence() {}
template <class T>
T __ldg(const T* at) {
  return *at;
}
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline int __popc(unsigned v) { return std::popcount(v); }
inline int __ffs(unsigned v) { return v == 0 ? 0 : std::countr_zero(v) + 1; }
inline float __fdividef(float a, float b) { return a / b; }

namespace loci::cuda {

using std::max;
using std::min;

struct Half;
struct BFloat16;

template <class T>
T* shared_memory() {
  return reinterpret_cast<T*>(simulated::lane().shared);
}

float to_float(Half v);
float to_float(BFloat16 v);
inline float to_float(float v) { return v; }
template <class T>
T from_float(float v);
template <>
Half from_float<Half>(float v);
template <>
BFloat16 from_float<BFloat16>(float v);
template <>
inline float from_float<float>(float v) {
  return v;
}

inline unsigned opaque(unsigned v) { return v; }
inline float exp2_fast(float v) { return exp2f(v); }

template <class T>
void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
template <>
inline void mma_16x8x16<Half>(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  simulated::mma(simulated::MmaType::kHalf, d, a, b);
}
template <>
inline void mma_16x8x16<BFloat16>(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  simulated::mma(simulated::MmaType::kBFloat16, d, a, b);
}
inline void load_matrix_x4(std::uint32_t (&r)[4], const void* row) { simulated::load_matrix(r, row, false); }
inline void load_matrix_x4_transposed(std::uint32_t (&r)[4], const void* row) {
  simulated::load_matrix(r, row, true);
}

inline void copy_async_16(void* to, const void* from, bool valid = true) {
  simulated::check_shared(to, 16);
  LOCI_CHECK(reinterpret_cast<std::uintptr_t>(to) % 16 == 0, "an asynchronous copy's target is aligned");
  LOCI_CHECK(!valid || reinterpret_cast<std::uintptr_t>(from) % 16 == 0, "and so is its source");
  simulated::lane().copies.push_back({to, from, valid});
}
inline void copy_async_commit() { simulated::lane().copy_groups.push_back(simulated::lane().copies.size()); }
template <int Groups>
void copy_async_wait() {
  simulated::wait_copies(Groups);
}
inline uint4 load_once(const uint4* from) { return *from; }

}  // namespace loci::cuda
