// SPDX-License-Identifier: Apache-2.0
// Functions of single values, and the feed of tokens.
#include "loci/base/check.h"
#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/rows/elements.h"
#include "loci/compute/cuda/rows/rows.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

// Where e^-x overflows the quotient is the zero that is meant.
LOCI_DEVICE float sigmoid_times(float x, float factor) { return x / (1.0f + expf(-factor * x)); }

template <Activation kind>
LOCI_DEVICE float activated(float x) {
  if constexpr (kind == Activation::kSilu) return sigmoid_times(x, 1.0f);
  if constexpr (kind == Activation::kGelu) return 0.5f * x * (1.0f + erff(x * 0.707106781186547524f));
  if constexpr (kind == Activation::kGeluTanh) {
    // 0.5 (1 + tanh(u)) = 1 / (1 + e^(-2 u)) with u = sqrt(2 / pi) * (x + 0.044715 x^3)
    const float inner = x * fmaf(x * x, 0.044715f, 1.0f);
    return x / (1.0f + expf(-1.59576912160573f * inner));
  }
  if constexpr (kind == Activation::kRelu) return x < 0.0f ? 0.0f : x;
  if constexpr (kind == Activation::kClampedSwiglu) return sigmoid_times(x > 7.0f ? 7.0f : x, 1.702f);
}
template <Activation kind>
LOCI_DEVICE float gated(float gate, float up) {
  if constexpr (kind == Activation::kClampedSwiglu) {
    up = (up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up) + 1.0f;
  }
  return activated<kind>(gate) * up;
}

// blockIdx.x: a row; a thread has N neighbouring values of it.
template <class T, Activation kind, int N>
__global__ __launch_bounds__(kThreads) void activate_values(ActivateArguments p) {
  follow_previous();
  const std::size_t row = blockIdx.x;
  const unsigned first = (blockIdx.y * kThreads + threadIdx.x) * N;
  if (first >= p.width) return;
  const T* input = static_cast<const T*>(p.input) + row * p.width * (p.gated ? 2 : 1) + first;
  float x[N], y[N];
  load_product(input, x);
  if (p.gated) {
    float up[N];
    load_product(input + p.width, up);
#pragma unroll
    for (int k = 0; k < N; ++k) y[k] = gated<kind>(x[k], up[k]);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) y[k] = activated<kind>(x[k]);
  }
#pragma unroll
  for (int k = 0; k < N; ++k) y[k] = saturated<T>(y[k]);
  store_run(static_cast<T*>(p.output) + row * p.width + first, y);
}

template <class T, Activation kind>
void launch_values(const ActivateArguments& a, Stream& stream) {
  const bool runs = a.width % kRun == 0 && aligned_16(a.input) && aligned_16(a.output);
  launch("activate", runs ? activate_values<T, kind, kRun> : activate_values<T, kind, 1>,
         {.grid = {a.rows, ceil_div(a.width, kThreads * (runs ? kRun : 1))}, .block = {kThreads}}, a, stream);
}

struct CapParams {
  float* logits;
  std::uint64_t count;
  float softcap;
};
__global__ __launch_bounds__(kThreads) void cap_values(CapParams p) {
  follow_previous();
  const std::uint64_t at = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at < p.count) p.logits[at] = p.softcap * tanhf(p.logits[at] / p.softcap);
}

__global__ __launch_bounds__(kThreads) void feed_rows(FeedArguments p) {
  follow_previous();
  const unsigned row = blockIdx.x * kThreads + threadIdx.x;
  if (row >= p.rows) return;
  const std::uint32_t source = p.sources[row];
  if (source != FeedArguments::kNone) p.tokens[row] = p.samples[source];
}

}  // namespace

void activate(const ActivateArguments& arguments, Stream& stream) {
  LOCI_CHECK(arguments.gated || arguments.activation != Activation::kClampedSwiglu,
             "this activation has a gate");
  LOCI_CHECK(arguments.width > 0, "a width");
  with_elements(arguments.type, [&](auto element) {
    using T = decltype(element);
    switch (arguments.activation) {
      case Activation::kSilu: return launch_values<T, Activation::kSilu>(arguments, stream);
      case Activation::kGelu: return launch_values<T, Activation::kGelu>(arguments, stream);
      case Activation::kGeluTanh: return launch_values<T, Activation::kGeluTanh>(arguments, stream);
      case Activation::kRelu: return launch_values<T, Activation::kRelu>(arguments, stream);
      case Activation::kClampedSwiglu: return launch_values<T, Activation::kClampedSwiglu>(arguments, stream);
    }
  });
}

void cap_logits(float* logits, std::uint64_t count, float softcap, Stream& stream) {
  LOCI_CHECK(softcap > 0, "a cap");
  launch("cap_logits", cap_values, {.grid = {ceil_div(count, kThreads)}, .block = {kThreads}},
         CapParams{logits, count, softcap}, stream);
}

void feed_tokens(const FeedArguments& arguments, Stream& stream) {
  launch("feed_tokens", feed_rows, {.grid = {ceil_div(arguments.rows, kThreads)}, .block = {kThreads}},
         arguments, stream);
}

}  // namespace loci::cuda
