// SPDX-License-Identifier: Apache-2.0
#include "reference/reference_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "loci/base/check.h"
#include "loci/model/tensor.h"

namespace loci {
namespace {

// Activations are [feature][token], so that every loop's innermost index is the token: sums over
// features then run in a fixed order, and compilers still vectorise.
struct Activations {
  Activations(std::size_t features_count, std::size_t tokens_count)
      : features(features_count), tokens(tokens_count), values(features_count * tokens_count, 0.0) {}

  double* feature(std::size_t index) { return values.data() + index * tokens; }
  const double* feature(std::size_t index) const { return values.data() + index * tokens; }

  std::size_t features;
  std::size_t tokens;
  std::vector<double> values;
};

std::vector<float> decode(const TensorView& tensor, std::size_t row) {
  std::vector<float> values(tensor.columns);
  decode_row(tensor, row, values);
  return values;
}

// weights [outputs, inputs] · x [inputs][token] + bias [1, outputs] → [outputs][token]
Activations multiply(const TensorView& weights, const TensorView& bias, const Activations& x) {
  LOCI_CHECK(weights.columns == x.features, "a matrix must take the activations' features");
  Activations out(weights.rows, x.tokens);
  for (std::size_t row = 0; row < weights.rows; ++row) {
    const std::vector<float> weight = decode(weights, row);
    double* sum = out.feature(row);
    for (std::size_t column = 0; column < x.features; ++column) {
      const double* input = x.feature(column);
      for (std::size_t t = 0; t < x.tokens; ++t) sum[t] += weight[column] * input[t];
    }
  }
  if (bias.present()) {
    const std::vector<float> values = decode(bias, 0);
    for (std::size_t row = 0; row < weights.rows; ++row) {
      for (std::size_t t = 0; t < x.tokens; ++t) out.feature(row)[t] += values[row];
    }
  }
  return out;
}

// The norm of x's features [begin, begin + count), in place.
void normalise(NormKind kind, const NormSpec& norm, double epsilon, std::size_t begin, std::size_t count,
               Activations& x) {
  const std::vector<float> weight = decode(norm.weight, 0);
  const std::vector<float> bias = norm.bias.present() ? decode(norm.bias, 0) : std::vector<float>(count, 0);
  const auto size = static_cast<double>(count);
  for (std::size_t t = 0; t < x.tokens; ++t) {
    double mean = 0;
    if (kind == NormKind::kLayer) {
      for (std::size_t i = 0; i < count; ++i) mean += x.feature(begin + i)[t] / size;
    }
    double squares = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double centred = x.feature(begin + i)[t] - mean;
      squares += centred * centred;
    }
    const double scale = 1 / std::sqrt(squares / size + epsilon);
    for (std::size_t i = 0; i < count; ++i) {
      double& value = x.feature(begin + i)[t];
      value = (value - mean) * scale * weight[i] + bias[i];
    }
  }
}

// Of whole tokens; x itself where there is no norm.
Activations normalised(const ModelSpec& spec, const NormSpec& norm, Activations x) {
  if (norm.present()) normalise(spec.norm, norm, spec.norm_epsilon, 0, x.features, x);
  return x;
}

// Of each head.
void normalise_heads(const ModelSpec& spec, const NormSpec& norm, Activations& x) {
  if (!norm.present()) return;
  for (std::size_t begin = 0; begin < x.features; begin += spec.head_dim) {
    normalise(NormKind::kRms, norm, spec.norm_epsilon, begin, spec.head_dim, x);
  }
}

void add(Activations& x, const Activations& change) {
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += change.values[i];
}

// Rotates each head's pairs; x is [head, dim][token].
void rotate(Activations& x, std::uint32_t head_dim, const RopeSpec& rope) {
  const std::size_t pairs = rope.dimensions / 2;
  for (std::size_t head = 0; head < x.features / head_dim; ++head) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const bool adjacent = rope.layout == RopeLayout::kAdjacent;
      double* first = x.feature(head * head_dim + (adjacent ? 2 * i : i));
      double* second = x.feature(head * head_dim + (adjacent ? 2 * i + 1 : i + pairs));
      for (std::size_t t = 0; t < x.tokens; ++t) {
        const double angle = static_cast<double>(t) * rope.inverse_frequency[i];
        const double a = first[t];
        const double b = second[t];
        first[t] = rope.magnitude * (a * std::cos(angle) - b * std::sin(angle));
        second[t] = rope.magnitude * (a * std::sin(angle) + b * std::cos(angle));
      }
    }
  }
}

void round_to_f16(Activations& x) {
  for (double& value : x.values) value = f16_to_f32(f32_to_f16(static_cast<float>(value)));
}

double softcap(double value, double cap) { return cap == 0 ? value : cap * std::tanh(value / cap); }

// Causal attention of one head over the layer's window: reads and writes that head's features.
void attend(const ModelSpec& spec, const LayerSpec& layer, const Activations& q, const Activations& k,
            const Activations& v, std::size_t head, Activations& out) {
  const std::size_t first_q = head * spec.head_dim;
  const std::size_t first_kv = head / (spec.heads / spec.kv_heads) * spec.head_dim;
  std::vector<double> weight(q.tokens);
  for (std::size_t t = 0; t < q.tokens; ++t) {
    const std::size_t begin = layer.window == 0 || t < layer.window ? 0 : t - layer.window + 1;
    double largest = layer.attention_sinks.present()
                         ? static_cast<double>(decode(layer.attention_sinks, 0)[head])
                         : -std::numeric_limits<double>::infinity();
    const double sink = largest;
    for (std::size_t s = begin; s <= t; ++s) {
      double dot = 0;
      for (std::size_t i = 0; i < spec.head_dim; ++i)
        dot += q.feature(first_q + i)[t] * k.feature(first_kv + i)[s];
      weight[s] = softcap(dot * static_cast<double>(spec.attention_scale), spec.attention_softcap);
      largest = std::max(largest, weight[s]);
    }
    double total = std::exp(sink - largest);  // 0 where there is none
    for (std::size_t s = begin; s <= t; ++s) total += weight[s] = std::exp(weight[s] - largest);
    for (std::size_t i = 0; i < spec.head_dim; ++i) {
      double sum = 0;
      for (std::size_t s = begin; s <= t; ++s) sum += weight[s] * v.feature(first_kv + i)[s];
      out.feature(first_q + i)[t] = sum / total;
    }
  }
}

// output · attention(...) of the normalised n.
Activations attention(const ModelSpec& spec, const LayerSpec& layer, ReferenceState state,
                      const Activations& n) {
  Activations q = multiply(layer.query, layer.query_bias, n);
  Activations k = multiply(layer.key, layer.key_bias, n);
  Activations v = multiply(layer.value, layer.value_bias, n);
  normalise_heads(spec, layer.query_norm, q);
  normalise_heads(spec, layer.key_norm, k);
  if (layer.rope) {
    rotate(q, spec.head_dim, spec.ropes[*layer.rope]);
    rotate(k, spec.head_dim, spec.ropes[*layer.rope]);
  }
  if (state == ReferenceState::kF16) {
    round_to_f16(k);
    round_to_f16(v);
  }
  Activations attended(q.features, q.tokens);
  for (std::size_t head = 0; head < spec.heads; ++head) attend(spec, layer, q, k, v, head, attended);
  return multiply(layer.attention_output, layer.attention_output_bias, attended);
}

// The activation of `gate`, multiplied with `up`.
double activate(Activation activation, double gate, double up) {
  switch (activation) {
    case Activation::kSilu: return gate / (1 + std::exp(-gate)) * up;
    case Activation::kGelu: return 0.5 * gate * (1 + std::erf(gate * std::numbers::sqrt2 / 2)) * up;
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate);
      return 0.5 * gate * (1 + std::tanh(inner)) * up;
    }
    case Activation::kRelu: return std::max(gate, 0.0) * up;
    case Activation::kClampedSwiglu: {
      const double limited = std::min(gate, 7.0);
      return limited / (1 + std::exp(-1.702 * limited)) * (std::clamp(up, -7.0, 7.0) + 1);
    }
  }
  LOCI_CHECK(false, "an unknown activation");
}

// One dense feed-forward part, or one expert's.
Activations feed_forward(const ModelSpec& spec, const FeedForwardSpec& ffn, const Activations& m) {
  Activations up = multiply(ffn.up, ffn.up_bias, m);
  if (ffn.gate.present()) {
    const Activations gate = multiply(ffn.gate, ffn.gate_bias, m);
    for (std::size_t i = 0; i < up.values.size(); ++i)
      up.values[i] = activate(spec.activation, gate.values[i], up.values[i]);
  } else {
    for (double& value : up.values) value = activate(spec.activation, value, 1);
  }
  return multiply(ffn.down, ffn.down_bias, up);
}

// The part of expert `index` where `experts` of them lie one after the other: rows of a matrix, columns
// of a bias.
TensorView part_of(TensorView tensor, std::size_t index, std::size_t experts) {
  if (!tensor.present()) return tensor;
  tensor.data += tensor.size_bytes() / experts * index;
  (tensor.rows == 1 ? tensor.columns : tensor.rows) /= experts;
  return tensor;
}

FeedForwardSpec expert_of(const FeedForwardSpec& ffn, std::size_t index, std::size_t experts) {
  FeedForwardSpec expert;
  expert.gate = part_of(ffn.gate, index, experts);
  expert.gate_bias = part_of(ffn.gate_bias, index, experts);
  expert.up = part_of(ffn.up, index, experts);
  expert.up_bias = part_of(ffn.up_bias, index, experts);
  expert.down = part_of(ffn.down, index, experts);
  expert.down_bias = part_of(ffn.down_bias, index, experts);
  return expert;
}

// The weight of each expert [expert][token]; zero where it is not among the best. Notes each token's
// margin.
Activations route(const ModelSpec& spec, const FeedForwardSpec& ffn, const Activations& m,
                  std::vector<double>& margins) {
  Activations weights = multiply(ffn.router, ffn.router_bias, m);
  std::vector<std::size_t> order(spec.experts);
  for (std::size_t t = 0; t < m.tokens; ++t) {
    const auto score = [&](std::size_t expert) { return weights.feature(expert)[t]; };
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return score(a) > score(b); });
    if (spec.expert_uses < spec.experts) {
      margins[t] = std::min(margins[t], score(order[spec.expert_uses - 1]) - score(order[spec.expert_uses]));
    }
    const double largest = score(order[0]);
    double total = 0;
    for (std::size_t i = 0; i < spec.experts; ++i) {
      double& weight = weights.feature(order[i])[t];
      weight = std::exp(weight - largest);
      if (i < spec.expert_uses || !spec.expert_weights_normalised) total += weight;
    }
    for (std::size_t i = 0; i < spec.experts; ++i)
      weights.feature(order[i])[t] *= i < spec.expert_uses ? 1 / total : 0;
  }
  return weights;
}

// Every expert computes every token: plain, and what is not chosen has weight zero.
Activations mixture(const ModelSpec& spec, const FeedForwardSpec& ffn, const Activations& m,
                    std::vector<double>& margins) {
  const Activations weights = route(spec, ffn, m, margins);
  Activations out(spec.hidden, m.tokens);
  for (std::size_t e = 0; e < spec.experts; ++e) {
    const double* weight = weights.feature(e);
    if (std::all_of(weight, weight + m.tokens, [](double w) { return w == 0; })) continue;
    const Activations expert = feed_forward(spec, expert_of(ffn, e, spec.experts), m);
    for (std::size_t i = 0; i < out.features; ++i) {
      for (std::size_t t = 0; t < m.tokens; ++t) out.feature(i)[t] += weight[t] * expert.feature(i)[t];
    }
  }
  return out;
}

void apply_layer(const ModelSpec& spec, const LayerSpec& layer, ReferenceState state, Activations& x,
                 std::vector<double>& margins) {
  const Activations n = normalised(spec, layer.attention_norm, x);
  const Activations a = normalised(spec, layer.attention_post_norm, attention(spec, layer, state, n));
  Activations m = spec.parallel && !layer.ffn_norm.present() ? n : x;
  if (!spec.parallel) add(m, a);
  if (layer.ffn_norm.present()) m = normalised(spec, layer.ffn_norm, std::move(m));
  const Activations f =
      layer.ffn.router.present() ? mixture(spec, layer.ffn, m, margins) : feed_forward(spec, layer.ffn, m);
  add(x, a);
  add(x, normalised(spec, layer.ffn_post_norm, f));
}

Activations embed(const ModelSpec& spec, std::span<const TokenId> tokens) {
  Activations x(spec.hidden, tokens.size());
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::vector<float> embedding = decode(spec.embedding, tokens[t].value);
    for (std::size_t i = 0; i < spec.hidden; ++i)
      x.feature(i)[t] = static_cast<double>(embedding[i]) * static_cast<double>(spec.embedding_scale);
    if (!spec.position_embedding.present()) continue;
    const std::vector<float> learned = decode(spec.position_embedding, t + spec.position_offset);
    for (std::size_t i = 0; i < spec.hidden; ++i) x.feature(i)[t] += learned[i];
  }
  return x;
}

}  // namespace

std::vector<double> reference_logits(const ModelSpec& spec, std::span<const TokenId> tokens,
                                     ReferenceState state, std::vector<double>* router_margins) {
  Activations x = embed(spec, tokens);
  std::vector<double> margins(tokens.size(), std::numeric_limits<double>::infinity());
  for (const LayerSpec& layer : spec.layers) apply_layer(spec, layer, state, x, margins);
  const Activations by_feature = multiply(spec.output, {}, normalised(spec, spec.output_norm, std::move(x)));
  std::vector<double> logits(tokens.size() * spec.vocabulary);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    for (std::size_t i = 0; i < spec.vocabulary; ++i)
      logits[t * spec.vocabulary + i] = softcap(by_feature.feature(i)[t], spec.output_softcap);
  }
  if (router_margins != nullptr) *router_margins = std::move(margins);
  return logits;
}

}  // namespace loci
