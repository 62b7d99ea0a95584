// SPDX-License-Identifier: Apache-2.0
// Searches for the steps of a group of 16 or 32 elements; internal to quantize.cc.
#pragma once

#include <cstdint>
#include <span>

namespace loci::quantize {

// x is near step * q - floor, q an integer in [0, levels], floor >= 0.
struct Affine {
  float step = 0;
  float floor = 0;
};

// The squared error of quantising `x` with this step and floor to the nearest q in [0, levels].
float affine_error(std::span<const float> x, Affine fit, int levels);

// The best of some trials: each of several trial steps gives integers, and least squares gives the best real
// step and floor for these integers. The pair with the least squared error is returned.
Affine fit_affine(std::span<const float> x, int levels);

// The best of some trial steps, by squared error, for x near step * q, q an integer in [-levels, levels - 1].
// No element's error exceeds max|x| / levels, a step of the plain choice, by more than rounding.
float fit_symmetric(std::span<const float> x, int levels);

}  // namespace loci::quantize
