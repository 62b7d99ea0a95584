// SPDX-License-Identifier: Apache-2.0
// The part of kernels_plain.cc that products.inl has.
#define LOCI_KERNELS plain_set
#define LOCI_SIMD_PLAIN
#define LOCI_SIMD_FILE "loci/compute/cpu/simd_plain.inl"
#include "loci/compute/cpu/products.inl"
