// SPDX-License-Identifier: Apache-2.0
#include "loci/model/quantize_fit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace loci::quantize {
namespace {

// Four elements at a time, in the compiler's own vectors.
using Four = float __attribute__((vector_size(16)));
constexpr std::size_t kLanes = 4;

Four load(const float* from) {
  Four four;
  std::memcpy(&four, from, sizeof(four));
  return four;
}
Four all(float value) { return Four{value, value, value, value}; }
float total(Four x) { return (x[0] + x[2]) + (x[1] + x[3]); }

// To the nearest integer in [least, most], for limits below 2^22.
Four nearest_within(Four value, Four least, Four most) {
  const Four magic = all(12582912.0f);
  value = value < least ? least : value;
  value = value > most ? most : value;
  return (value + magic) - magic;
}

struct Sums {
  float q = 0, qq = 0, xq = 0;
};

// With q = nearest((x + shift) * per_step) in [least, most].
Sums sums_of(std::span<const float> x, float shift, float per_step, float least, float most) {
  Four q = all(0), qq = all(0), xq = all(0);
  for (std::size_t i = 0; i < x.size(); i += kLanes) {
    const Four value = load(&x[i]);
    const Four level = nearest_within((value + all(shift)) * all(per_step), all(least), all(most));
    q += level;
    qq += level * level;
    xq += value * level;
  }
  return {total(q), total(qq), total(xq)};
}

float inverse(float value) { return value == 0 ? 0 : 1 / value; }

struct Errors {
  float squared = 0, largest = 0;
};

Errors errors_of(std::span<const float> x, Affine fit, float least, float most) {
  const Four per_step = all(inverse(fit.step)), step = all(fit.step), floor = all(fit.floor);
  Four squares = all(0), largest = all(0);
  for (std::size_t i = 0; i < x.size(); i += kLanes) {
    const Four value = load(&x[i]);
    const Four level = nearest_within((value + floor) * per_step, all(least), all(most));
    const Four error = (level * step - floor) - value;
    const Four magnitude = error < 0 ? -error : error;
    squares += error * error;
    largest = largest > magnitude ? largest : magnitude;
  }
  return {total(squares), std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]))};
}

}  // namespace

float affine_error(std::span<const float> x, Affine fit, int levels) {
  return errors_of(x, fit, 0, static_cast<float>(levels)).squared;
}

Affine fit_affine(std::span<const float> x, int levels) {
  const auto [lowest, highest] = std::minmax_element(x.begin(), x.end());
  const float least = std::min(*lowest, 0.0f), range = *highest - least;
  if (!(range > 0)) return {0, -least};
  float sum = 0;
  for (const float value : x) sum += value;
  const auto count = static_cast<float>(x.size());
  const auto most = static_cast<float>(levels);

  Affine best{range / most, -least};
  float best_error = affine_error(x, best, levels);
  constexpr int kTrials = 8;
  for (int trial = 0; trial <= kTrials; ++trial) {
    // From a range widened by a step to one narrowed by a step: clipping the ends may be worth it.
    const float per_step = (most - 1.0f + 2.0f * static_cast<float>(trial) / kTrials) / range;
    const Sums s = sums_of(x, -least, per_step, 0, most);
    const float determinant = count * s.qq - s.q * s.q;
    if (!(determinant > 0)) continue;
    Affine fit;
    fit.step = (count * s.xq - sum * s.q) / determinant;
    fit.floor = (s.q * fit.step - sum) / count;
    if (fit.floor < 0) fit = {s.xq / s.qq, 0};
    if (!(fit.step > 0)) continue;
    const float error = affine_error(x, fit, levels);
    if (error < best_error) best = fit, best_error = error;
  }
  return best;
}

float fit_symmetric(std::span<const float> x, int levels) {
  const float extreme =
      *std::max_element(x.begin(), x.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  if (extreme == 0) return 0;
  const auto least = static_cast<float>(-levels), most = static_cast<float>(levels - 1);
  // The value of largest magnitude becomes the end of the longer side.
  float best = extreme / least;
  float best_error = errors_of(x, {best, 0}, least, most).squared;
  const float allowed = std::fabs(best);
  constexpr int kTrials = 8;
  for (int trial = 0; trial <= kTrials; ++trial) {
    const float end = least + 1.0f - 2.0f * static_cast<float>(trial) / kTrials;
    const Sums s = sums_of(x, 0, end / extreme, least, most);
    if (!(s.qq > 0)) continue;
    const float step = s.xq / s.qq;
    const Errors found = errors_of(x, {step, 0}, least, most);
    if (found.squared < best_error && found.largest <= allowed) best = step, best_error = found.squared;
  }
  return best;
}

}  // namespace loci::quantize
