#include "reference/reference_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

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

Activations rms_norm(const Activations& x, const TensorView& weights, double epsilon) {
  const std::vector<float> weight = decode(weights, 0);
  Activations out(x.features, x.tokens);
  for (std::size_t t = 0; t < x.tokens; ++t) {
    double squares = 0;
    for (std::size_t i = 0; i < x.features; ++i) squares += x.feature(i)[t] * x.feature(i)[t];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.features) + epsilon);
    for (std::size_t i = 0; i < x.features; ++i) out.feature(i)[t] = x.feature(i)[t] * scale * weight[i];
  }
  return out;
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
        first[t] = a * std::cos(angle) - b * std::sin(angle);
        second[t] = a * std::sin(angle) + b * std::cos(angle);
      }
    }
  }
}

void round_to_f16(Activations& x) {
  for (double& value : x.values) value = f16_to_f32(f32_to_f16(static_cast<float>(value)));
}

// Causal attention of one head: q, k, v and out are that head's first features.
void attend(const ModelSpec& spec, const Activations& q, const Activations& k, const Activations& v,
            std::size_t head, Activations& out) {
  const std::size_t first_q = head * spec.head_dim;
  const std::size_t first_kv = head / (spec.heads / spec.kv_heads) * spec.head_dim;
  std::vector<double> weight(q.tokens);
  for (std::size_t t = 0; t < q.tokens; ++t) {
    for (std::size_t s = 0; s <= t; ++s) {
      double dot = 0;
      for (std::size_t i = 0; i < spec.head_dim; ++i)
        dot += q.feature(first_q + i)[t] * k.feature(first_kv + i)[s];
      weight[s] = dot * static_cast<double>(spec.attention_scale);
    }
    const double largest =
        *std::max_element(weight.begin(), weight.begin() + static_cast<std::ptrdiff_t>(t) + 1);
    double total = 0;
    for (std::size_t s = 0; s <= t; ++s) total += weight[s] = std::exp(weight[s] - largest);
    for (std::size_t i = 0; i < spec.head_dim; ++i) {
      double sum = 0;
      for (std::size_t s = 0; s <= t; ++s) sum += weight[s] * v.feature(first_kv + i)[s];
      out.feature(first_q + i)[t] = sum / total;
    }
  }
}

void apply_attention(const ModelSpec& spec, const LayerSpec& layer, ReferenceState state, Activations& x) {
  const Activations n = rms_norm(x, layer.attention_norm.weight, spec.norm_epsilon);
  Activations q = multiply(layer.query, layer.query_bias, n);
  Activations k = multiply(layer.key, layer.key_bias, n);
  Activations v = multiply(layer.value, layer.value_bias, n);
  rotate(q, spec.head_dim, spec.ropes[*layer.rope]);
  rotate(k, spec.head_dim, spec.ropes[*layer.rope]);
  if (state == ReferenceState::kF16) {
    round_to_f16(k);
    round_to_f16(v);
  }
  Activations attended(q.features, q.tokens);
  for (std::size_t head = 0; head < spec.heads; ++head) attend(spec, q, k, v, head, attended);
  add(x, multiply(layer.attention_output, layer.attention_output_bias, attended));
}

void apply_ffn(const ModelSpec& spec, const LayerSpec& layer, Activations& x) {
  LOCI_CHECK(spec.activation == Activation::kSilu, "the reference knows SiLU alone");
  const Activations m = rms_norm(x, layer.ffn_norm.weight, spec.norm_epsilon);
  Activations gate = multiply(layer.ffn.gate, {}, m);
  const Activations up = multiply(layer.ffn.up, {}, m);
  for (std::size_t i = 0; i < gate.values.size(); ++i) {
    gate.values[i] = gate.values[i] / (1 + std::exp(-gate.values[i])) * up.values[i];
  }
  add(x, multiply(layer.ffn.down, {}, gate));
}

}  // namespace

std::vector<double> reference_logits(const ModelSpec& spec, std::span<const TokenId> tokens,
                                     ReferenceState state) {
  Activations x(spec.hidden, tokens.size());
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::vector<float> embedding = decode(spec.embedding, tokens[t].value);
    for (std::size_t i = 0; i < spec.hidden; ++i) x.feature(i)[t] = embedding[i];
  }
  for (const LayerSpec& layer : spec.layers) {
    apply_attention(spec, layer, state, x);
    apply_ffn(spec, layer, x);
  }
  const Activations by_feature =
      multiply(spec.output, {}, rms_norm(x, spec.output_norm.weight, spec.norm_epsilon));
  std::vector<double> logits(tokens.size() * spec.vocabulary);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    for (std::size_t i = 0; i < spec.vocabulary; ++i)
      logits[t * spec.vocabulary + i] = by_feature.feature(i)[t];
  }
  return logits;
}

}  // namespace loci
