// SPDX-License-Identifier: Apache-2.0
// Arithmetic on two f16 values in one register, and byte shuffles, which decoding weights needs beyond
// simt.h. Each result is rounded once, to nearest even.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/simt.h"

namespace loci::cuda {

#ifdef __CUDACC__

LOCI_DEVICE std::uint32_t half2_add(std::uint32_t a, std::uint32_t b) {
  std::uint32_t v;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
  return v;
}
LOCI_DEVICE std::uint32_t half2_multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t v;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
  return v;
}
// a * b + c.
LOCI_DEVICE std::uint32_t half2_fma(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t v;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c));
  return v;
}
// Byte i of the result is byte (selector >> 4 i & 7) of a (0 to 3) and b (4 to 7).
LOCI_DEVICE std::uint32_t permute_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  return __byte_perm(a, b, selector);
}
// (v & kMask) | kBits in one instruction; the compiler would use two.
template <std::uint32_t kMask, std::uint32_t kBits>
LOCI_DEVICE std::uint32_t masked_with(std::uint32_t v) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(v), "n"(kMask), "n"(kBits));
  return result;
}
// The lower (or upper) half in both halves. It is a modifier of an operand and costs no instruction.
LOCI_DEVICE std::uint32_t both_low(std::uint32_t v) {
  std::uint32_t result;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {low, low};}" : "=r"(result) : "r"(v));
  return result;
}
LOCI_DEVICE std::uint32_t both_high(std::uint32_t v) {
  std::uint32_t result;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, high};}" : "=r"(result) : "r"(v));
  return result;
}

#else

// Computes in double: sums and products of halves are exact there, or so close that rounding twice gives the
// same as rounding once.
template <class Operation>
std::uint32_t each_half(Operation operation) {
  return pack2<Half>(static_cast<float>(operation(0)), static_cast<float>(operation(1)));
}
inline double half_of(std::uint32_t both, int index) {
  const float2 values = unpack2<Half>(both);
  return index == 0 ? values.x : values.y;
}
inline std::uint32_t half2_add(std::uint32_t a, std::uint32_t b) {
  return each_half([=](int i) { return half_of(a, i) + half_of(b, i); });
}
inline std::uint32_t half2_multiply(std::uint32_t a, std::uint32_t b) {
  return each_half([=](int i) { return half_of(a, i) * half_of(b, i); });
}
inline std::uint32_t half2_fma(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return each_half([=](int i) { return half_of(a, i) * half_of(b, i) + half_of(c, i); });
}
inline std::uint32_t permute_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t both = std::uint64_t{b} << 32 | a;
  std::uint32_t v = 0;
  for (int i = 0; i < 4; ++i) {
    v |= static_cast<std::uint32_t>(both >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
  }
  return v;
}

template <std::uint32_t kMask, std::uint32_t kBits>
std::uint32_t masked_with(std::uint32_t v) {
  return (v & kMask) | kBits;
}
inline std::uint32_t both_low(std::uint32_t v) { return permute_bytes(v, v, 0x1010); }
inline std::uint32_t both_high(std::uint32_t v) { return permute_bytes(v, v, 0x3232); }

#endif

}  // namespace loci::cuda
