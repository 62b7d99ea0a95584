#include "loci/model/quantize_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace loci::quantize {
namespace {

constexpr std::size_t kLanes = 8;  // partial sums, so that a compiler can use vectors

// To the nearest integer, for |value| < 2^22.
float nearest(float value) { return (value + 12582912.0f) - 12582912.0f; }
float within(float value, float least, float most) {
  const float low = value < least ? least : value;
  return low > most ? most : low;
}

float total(const std::array<float, kLanes>& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

struct Sums {
  float q = 0, qq = 0, xq = 0;
};

// With q = nearest((x + shift) * per_step) in [least, most].
Sums sums_of(std::span<const float> x, float shift, float per_step, float least, float most) {
  std::array<float, kLanes> q{}, qq{}, xq{};
  for (std::size_t i = 0; i < x.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float value = x[i + lane];
      const float level = nearest(within((value + shift) * per_step, least, most));
      q[lane] += level;
      qq[lane] += level * level;
      xq[lane] += value * level;
    }
  }
  return {total(q), total(qq), total(xq)};
}

float inverse(float value) { return value == 0 ? 0 : 1 / value; }

struct Errors {
  float squared = 0, largest = 0;
};

Errors errors_of(std::span<const float> x, Affine fit, float least, float most) {
  const float per_step = inverse(fit.step);
  std::array<float, kLanes> squares{}, largest{};
  for (std::size_t i = 0; i < x.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float level = nearest(within((x[i + lane] + fit.floor) * per_step, least, most));
      const float error = (level * fit.step - fit.floor) - x[i + lane];
      const float magnitude = error < 0 ? -error : error;
      squares[lane] += error * error;
      largest[lane] = largest[lane] > magnitude ? largest[lane] : magnitude;
    }
  }
  return {total(squares), *std::max_element(largest.begin(), largest.end())};
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
  constexpr int kTrials = 10;
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
