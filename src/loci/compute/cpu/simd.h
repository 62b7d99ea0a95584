// SPDX-License-Identifier: Apache-2.0
// The 16 virtual lanes over which every float sum of the CPU backend is defined, in four implementations with
// the same bits: plain loops, AVX2, AVX-512, NEON. docs/numerics.md has the definitions.
//
// Included by kernels.inl, kernels_wide.inl and products*.inl, inside no namespace. The translation unit
// names its namespace and set:
//   LOCI_KERNELS           the namespace, unique for each instruction set
//   LOCI_SIMD_FILE         "simd_plain.inl" or another
//   LOCI_SIMD_PLAIN        for plain loops only
// Nothing here or in kernels.inl includes a header with inline functions of external linkage: the
// linker keeps one copy of such a function, and it might be the one compiled for AVX-512.
//
// What each implementation provides (x, y: F32x16; all operations are IEEE 754 single, round to nearest
// even):
//   load_i32, store_bytes         where wide tiles are (AVX-512, plain)
//   load/store_f32, _f16, _bf16  16 lanes; *_8: 8 lanes, the rest zero on load, untouched on store
//   add sub mul div fma abs      lane by lane; fma is fused
//   max(x, y), min(x, y)         x > y ? x : y (and <), as the processor's instruction
//   first_lanes(x, n, y)         lanes below n of x, the others of y
//   swap_neighbours(x)           lanes 0 and 1, 2 and 3, ... exchanged
//   sum_f32, max_f32             lanes (i, i + 8), then (i, i + 4), (i, i + 2), (0, 1)
//   quantize_four                where LOCI_QUANTIZES_FOUR is defined: FourBlocks (elementwise.inl)
//   sums_i32                     where it is not: elementwise.inl makes FourBlocks of it
//   store_low_bytes              the low byte of each lane
//   take_bits, merge_bits        fields of each of 64 bytes
//   lookup(table, x)             table[x] of 16 bytes for each of 64
//   add_products(sum, w, x)      adds to each lane of a ProductSum the products of its four unsigned bytes w
//                                with four signed bytes x that all lanes share. A sum holds chunks whose
//                                largest bytes add up to kSumCapacity; total<f>() is f times it.
//   kSumsHoldBias                a ProductSum is an I32x16, and may begin with any number
//   wide_bytes(w)                bytes above 127 as add_products wants them: kWideBias less
//   store_weights(p, x, y)       the low 16 bits of each lane of x, then of y, up to 16,383, in 64 bytes as
//                                add_weighted reads them
//   load_values, add_weighted(sum, v, p, quad)   adds to each lane of a ValueSum the products of its four
//                                signed bytes v with weights 4 * quad .. 4 * quad + 3 at p; value_total is
//                                the sum in 32 bits
//   sub_sums<a, b>(dot, s), times_sums(a, b, s)  dot - (a * s0 + b * s1); a * s0 + b * s1 (a and b to 15),
//                                with the 16-bit numbers s0, s1 at s
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define LOCI_LANES [[maybe_unused]] static inline __attribute__((always_inline))
// Put it before a loop whose arrays must be kept in registers.
#ifdef LOCI_SIMD_PLAIN
#define LOCI_UNROLL
#else
#define LOCI_UNROLL _Pragma("GCC unroll 32")
#endif
