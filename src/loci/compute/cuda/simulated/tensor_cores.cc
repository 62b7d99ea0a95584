// SPDX-License-Identifier: Apache-2.0
// What a warp's tensor core and matrix loads do, by the PTX manual's tables ("Matrix Fragments for
// mma.m16n8k16", "ldmatrix").
#include <cstdint>
#include <cstring>

#include "loci/compute/cuda/simt.h"

namespace loci::cuda {

float to_float(Half v) {
  _Float16 half;
  std::memcpy(&half, &v.bits, 2);
  return static_cast<float>(half);
}

float to_float(BFloat16 v) { return __uint_as_float(static_cast<unsigned>(v.bits) << 16); }

template <>
Half from_float<Half>(float v) {
  const auto half = static_cast<_Float16>(v);
  Half result;
  std::memcpy(&result.bits, &half, 2);
  return result;
}

template <>
BFloat16 from_float<BFloat16>(float v) {
  const unsigned bits = __float_as_uint(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

namespace simulated {
namespace {

struct MmaOperands {
  MmaType type;
  float* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

float element(MmaType type, std::uint32_t both, int index) {
  const auto bits = static_cast<std::uint16_t>(both >> (16 * index));
  return type == MmaType::kHalf ? to_float(Half{bits}) : to_float(BFloat16{bits});
}

void multiply(void* const (&lanes)[32]) {
  float a[16][16], b[16][8];
  for (int l = 0; l < 32; ++l) {
    const auto& mine = *static_cast<MmaOperands*>(lanes[l]);
    const int g = l / 4, t = l % 4;
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < 4; ++r) {
        a[g + 8 * (r % 2)][2 * t + 8 * (r / 2) + half] = element(mine.type, mine.a[r], half);
      }
      for (int r = 0; r < 2; ++r) b[2 * t + 8 * r + half][g] = element(mine.type, mine.b[r], half);
    }
  }
  for (int l = 0; l < 32; ++l) {
    float* d = static_cast<MmaOperands*>(lanes[l])->d;
    for (int r = 0; r < 4; ++r) {
      const int row = l / 4 + 8 * (r / 2), column = 2 * (l % 4) + r % 2;
      float products = 0;
      for (int k = 0; k < 16; ++k) products += a[row][k] * b[k][column];
      d[r] += products;
    }
  }
}

struct MatrixOperands {
  const void* row;
  std::uint32_t* result;
  bool transposed;
};

void load_matrices(void* const (&lanes)[32]) {
  for (int i = 0; i < 4; ++i) {
    std::uint16_t matrix[8][8];
    for (int r = 0; r < 8; ++r)
      std::memcpy(matrix[r], static_cast<MatrixOperands*>(lanes[8 * i + r])->row, 16);
    for (int l = 0; l < 32; ++l) {
      const auto& mine = *static_cast<MatrixOperands*>(lanes[l]);
      const int one = l / 4, two = 2 * (l % 4);
      const std::uint16_t low = mine.transposed ? matrix[two][one] : matrix[one][two];
      const std::uint16_t high = mine.transposed ? matrix[two + 1][one] : matrix[one][two + 1];
      mine.result[i] = low | static_cast<std::uint32_t>(high) << 16;
    }
  }
}

}  // namespace

void mma(MmaType type, float* d, const std::uint32_t* a, const std::uint32_t* b) {
  MmaOperands mine{type, d, a, b};
  meet_warp(Meeting::kMma, &mine, multiply);
}

void load_matrix(std::uint32_t (&r)[4], const void* row, bool transposed) {
  check_shared(row, 16);
  LOCI_CHECK(reinterpret_cast<std::uintptr_t>(row) % 16 == 0, "a matrix's row in shared memory is aligned");
  MatrixOperands mine{row, r, transposed};
  meet_warp(Meeting::kMatrix, &mine, load_matrices);
}

}  // namespace simulated
}  // namespace loci::cuda
