// SPDX-License-Identifier: Apache-2.0
// Draws from distributions, the same on every machine with the same floating-point functions.
#pragma once

#include <cmath>

#include "loci/base/random.h"

namespace loci::sim {

// With the mean 0 and the standard deviation 1.
inline double draw_normal(Random& random) {
  const double u = 1 - random.unit(), v = random.unit();
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * v);
}

inline double draw_exponential(Random& random, double mean) { return -std::log(1 - random.unit()) * mean; }

// With the mean `shape` and the scale 1: Marsaglia and Tsang, "A simple method for generating gamma
// variables" (2000).
inline double draw_gamma(Random& random, double shape) {
  const double boost = shape < 1 ? std::pow(1 - random.unit(), 1 / shape) : 1;
  const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = draw_normal(random), v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(1 - random.unit()) < x * x / 2 + d - d * v + d * std::log(v)) return boost * d * v;
  }
}

}  // namespace loci::sim
