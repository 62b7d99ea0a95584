// SPDX-License-Identifier: Apache-2.0
// The search for the steps of a group of 16 or 32 elements that quantise.cc is built on. Internal.
#pragma once

#include <cstdint>
#include <span>

namespace loci::quantize {

// x is near step * q - floor, q an integer in [0, levels], floor >= 0.
struct Affine {
  float step = 0;
  float floor = 0;
};

// The squared error of quantising `x` with these steps to the nearest q in [0, levels].
float affine_error(std::span<const float> x, Affine fit, int levels);

// The pair of least squared error among some: each of several trial steps gives integers, and least squares
// gives the best real step and floor for these.
Affine fit_affine(std::span<const float> x, int levels);

// The step of least squared error for x near step * q, q an integer in [-levels, levels - 1], among some. No
// element's error exceeds a step of the plain choice, max|x| / levels, by more than rounding.
float fit_symmetric(std::span<const float> x, int levels);

}  // namespace loci::quantize
