// SPDX-License-Identifier: Apache-2.0
// The part of kernels_avx2.cc that products.inl has.
#define LOCI_KERNELS avx2_set
#define LOCI_SIMD_FILE "loci/compute/cpu/simd_avx2.inl"
#include "loci/compute/cpu/products.inl"
