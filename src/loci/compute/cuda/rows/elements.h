// SPDX-License-Identifier: Apache-2.0
// Reading and writing runs of 8 elements (16 bytes), for the kernels between products.
#pragma once

#include <cstdint>

#include "loci/base/check.h"
#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {

inline constexpr std::uint32_t kRun = 8;  // elements of 16 bytes

template <class T>
LOCI_DEVICE float largest_of();
template <>
LOCI_DEVICE float largest_of<Half>() {
  return 65504.0f;
}
template <>
LOCI_DEVICE float largest_of<BFloat16>() {
  return 3.38953139e38f;
}

// Values beyond the type's range become its largest value; NaN stays NaN.
template <class T>
LOCI_DEVICE float saturated(float v) {
  const float largest = largest_of<T>();
  if (v > largest) return largest;
  return v < -largest ? -largest : v;
}
// The same, and NaN becomes the lowest value; for state.
template <class T>
LOCI_DEVICE float finite(float v) {
  return fminf(fmaxf(v, -largest_of<T>()), largest_of<T>());
}

template <class T>
LOCI_DEVICE void unpack_run(const uint4& run, float (&v)[kRun]) {
  const std::uint32_t words[4] = {run.x, run.y, run.z, run.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 both = unpack2<T>(words[i]);
    v[2 * i] = both.x;
    v[2 * i + 1] = both.y;
  }
}
template <class T>
LOCI_DEVICE uint4 pack_run(const float (&v)[kRun]) {
  return make_uint4(pack2<T>(v[0], v[1]), pack2<T>(v[2], v[3]), pack2<T>(v[4], v[5]), pack2<T>(v[6], v[7]));
}

// Load and store `N` values: kRun, aligned to 16 bytes, or 1.
template <class T, int N>
LOCI_DEVICE void load_run(const T* from, float (&v)[N]) {
  if constexpr (N == 1) {
    v[0] = to_float(*from);
  } else {
    unpack_run<T>(*reinterpret_cast<const uint4*>(from), v);
  }
}
template <class T, int N>
LOCI_DEVICE void store_run(T* to, const float (&v)[N]) {
  if constexpr (N == 1) {
    *to = from_float<T>(v[0]);
  } else {
    *reinterpret_cast<uint4*>(to) = pack_run<T>(v);
  }
}
// Loads what a product has stored. A library stores values beyond the type's range as infinite, and functions
// of infinity may be NaN. So an infinite value becomes the largest one, which Loci's own kernels store.
template <class T, int N>
LOCI_DEVICE void load_product(const T* from, float (&v)[N]) {
  load_run(from, v);
#pragma unroll
  for (int k = 0; k < N; ++k) v[k] = saturated<T>(v[k]);
}
template <int N>
LOCI_DEVICE void load_floats(const float* from, float (&v)[N]) {
  if constexpr (N == 1) {
    v[0] = *from;
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 part = *reinterpret_cast<const float4*>(from + i);
      v[i] = part.x;
      v[i + 1] = part.y;
      v[i + 2] = part.z;
      v[i + 3] = part.w;
    }
  }
}
template <int N>
LOCI_DEVICE void store_floats(float* to, const float (&v)[N]) {
  if constexpr (N == 1) {
    *to = v[0];
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 4)
      *reinterpret_cast<float4*>(to + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
  }
}

// --- on the host ---

// Calls use(T{}) with the type that `type` names.
template <class Use>
void with_elements(ElementType type, const Use& use) {
  if (type == ElementType::kHalf) {
    use(Half{});
  } else {
    use(BFloat16{});
  }
}
// True if the pointer is null or aligned to 16 bytes.
inline bool aligned_16(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

}  // namespace loci::cuda
