// SPDX-License-Identifier: Apache-2.0
// The exponential function with which samplers weigh tokens. It has no branches, so that compilers vectorise
// loops over it. It gives the same bits on every machine and device, because it is compiled without fused
// operations everywhere.
#pragma once

#include <bit>

namespace loci {

// e^x for x <= 0 with a relative error below 2e-7; exactly 0 below -87, and for NaN.
constexpr float exp_negative(float x) {
  const float clamped = x > -87.0f ? x : -87.0f;
  const float power = clamped * 1.44269504f;
  const float rounded = static_cast<float>(static_cast<int>(power - 0.5f));
  float r = clamped - rounded * 0.693359375f;
  r = r + rounded * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const float scale = std::bit_cast<float>((static_cast<int>(rounded) + 127) << 23);
  return x >= -87.0f ? p * scale : 0.0f;
}

}  // namespace loci
