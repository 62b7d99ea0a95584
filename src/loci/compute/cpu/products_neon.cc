// SPDX-License-Identifier: Apache-2.0
// The part of kernels_neon.cc that products.inl has.
#define LOCI_KERNELS neon_set
#define LOCI_SIMD_FILE "loci/compute/cpu/simd_neon.inl"
#include "loci/compute/cpu/products.inl"
