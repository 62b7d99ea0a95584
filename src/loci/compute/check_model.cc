// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/check_model.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace loci {
namespace {

Status check_sizes(const ModelSpec& spec) {
  const auto refuse = [](std::string message, const char* field) {
    return invalid_argument(std::move(message), field);
  };
  if (spec.layers.empty()) return refuse("a model has at least one layer", "layers");
  if (spec.hidden == 0 || spec.vocabulary == 0) return refuse("sizes must not be zero", "hidden");
  if (spec.kv_heads == 0 || spec.heads % spec.kv_heads != 0 || spec.heads == 0) {
    return refuse(fmt::format("{} heads are not a multiple of {} key/value heads", spec.heads, spec.kv_heads),
                  "heads");
  }
  if (spec.head_dim == 0) return refuse("sizes must not be zero", "head_dim");
  for (const RopeSpec& rope : spec.ropes) {
    if (rope.dimensions > spec.head_dim || rope.dimensions % 2 != 0 ||
        rope.inverse_frequency.size() != rope.dimensions / 2) {
      return refuse(
          fmt::format("expected an even number up to {} with half as many frequencies, found {} with {}",
                      spec.head_dim, rope.dimensions, rope.inverse_frequency.size()),
          "rope.dimensions");
    }
  }
  for (const LayerSpec& layer : spec.layers) {
    if (layer.rope && *layer.rope >= spec.ropes.size()) {
      return refuse(fmt::format("expected one of {} rotations, found {}", spec.ropes.size(), *layer.rope),
                    "rope");
    }
  }
  if (spec.experts > 0 && (spec.expert_uses == 0 || spec.expert_uses > spec.experts)) {
    return refuse(
        fmt::format("expected from 1 to {} experts for each token, found {}", spec.experts, spec.expert_uses),
        "expert_uses");
  }
  if (!(spec.attention_softcap >= 0 && spec.output_softcap >= 0)) {
    return refuse("expected caps of 0 or above", "softcap");
  }
  const TensorView& positions = spec.position_embedding;
  if (positions.present() && (positions.columns != spec.hidden ||
                              positions.rows < std::uint64_t{spec.context_length} + spec.position_offset)) {
    return invalid_argument(fmt::format("expected {} positions or more of {} values, found {} of {}",
                                        std::uint64_t{spec.context_length} + spec.position_offset,
                                        spec.hidden, positions.rows, positions.columns),
                            positions.name);
  }
  return {};
}

Status check_shape(const TensorView& tensor, std::uint64_t rows, std::uint64_t columns) {
  if (tensor.present() && tensor.rows == rows && tensor.columns == columns) return {};
  return invalid_argument(
      fmt::format("expected a tensor [{}, {}], found [{}, {}]", rows, columns, tensor.rows, tensor.columns),
      tensor.name);
}

Status check_vector(const TensorView& tensor, std::uint64_t count) {
  if (!tensor.present()) return {};
  return check_shape(tensor, 1, count);
}

Status check_norm(const NormSpec& norm, NormKind kind, std::uint64_t count) {
  LOCI_RETURN_IF_ERROR(check_vector(norm.weight, count));
  LOCI_RETURN_IF_ERROR(check_vector(norm.bias, count));
  if (norm.bias.present() && (kind == NormKind::kRms || !norm.present())) {
    return invalid_argument("expected no bias: it belongs to the weight of a LayerNorm", norm.bias.name);
  }
  return {};
}

// `parts` biases of `count` values, one after the other in one row or a row each.
Status check_biases(const TensorView& tensor, std::uint64_t parts, std::uint64_t count) {
  if (!tensor.present()) return {};
  return tensor.rows == 1 ? check_shape(tensor, 1, parts * count) : check_shape(tensor, parts, count);
}

Status check_ffn(const ModelSpec& spec, const FeedForwardSpec& ffn) {
  const bool mixture = ffn.router.present();
  const std::uint64_t parts = mixture ? spec.experts : 1;
  if (parts == 0) return invalid_argument("expected experts behind the router, found none", ffn.router.name);
  const std::uint64_t width = ffn.up.rows / parts;
  if (!ffn.up.present() || width == 0 || ((mixture || spec.experts == 0) && width != spec.ffn)) {
    return check_shape(ffn.up, parts * spec.ffn, spec.hidden);
  }
  LOCI_RETURN_IF_ERROR(check_shape(ffn.up, parts * width, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(ffn.down, parts * spec.hidden, width));
  LOCI_RETURN_IF_ERROR(check_biases(ffn.up_bias, parts, width));
  LOCI_RETURN_IF_ERROR(check_biases(ffn.down_bias, parts, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_biases(ffn.gate_bias, parts, width));
  if (ffn.gate.present()) LOCI_RETURN_IF_ERROR(check_shape(ffn.gate, parts * width, spec.hidden));
  if (!ffn.gate.present() && spec.activation == Activation::kClampedSwiglu) {
    return invalid_argument("expected a gate beside it, which the clamped SwiGLU needs", ffn.up.name);
  }
  if (!mixture) return {};
  LOCI_RETURN_IF_ERROR(check_shape(ffn.router, spec.experts, spec.hidden));
  return check_vector(ffn.router_bias, spec.experts);
}

Status check_layer(const ModelSpec& spec, const LayerSpec& layer) {
  const std::uint64_t q = std::uint64_t{spec.heads} * spec.head_dim, kv = spec.kv_width();
  for (const NormSpec* norm :
       {&layer.attention_norm, &layer.attention_post_norm, &layer.ffn_norm, &layer.ffn_post_norm}) {
    LOCI_RETURN_IF_ERROR(check_norm(*norm, spec.norm, spec.hidden));
  }
  LOCI_RETURN_IF_ERROR(check_norm(layer.query_norm, NormKind::kRms, spec.head_dim));
  LOCI_RETURN_IF_ERROR(check_norm(layer.key_norm, NormKind::kRms, spec.head_dim));
  LOCI_RETURN_IF_ERROR(check_shape(layer.query, q, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(layer.key, kv, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(layer.value, kv, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(layer.attention_output, spec.hidden, q));
  LOCI_RETURN_IF_ERROR(check_vector(layer.query_bias, q));
  LOCI_RETURN_IF_ERROR(check_vector(layer.key_bias, kv));
  LOCI_RETURN_IF_ERROR(check_vector(layer.value_bias, kv));
  LOCI_RETURN_IF_ERROR(check_vector(layer.attention_output_bias, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_vector(layer.attention_sinks, spec.heads));
  return check_ffn(spec, layer.ffn);
}

}  // namespace

Positions positions_of(const ModelSpec& spec) {
  if (spec.position_embedding.present()) return Positions::kAbsolute;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.rope) return Positions::kRotary;
  }
  return Positions::kNone;
}

Status check_model(const ModelSpec& spec) {
  LOCI_RETURN_IF_ERROR(check_sizes(spec));
  for (const LayerSpec& layer : spec.layers) LOCI_RETURN_IF_ERROR(check_layer(spec, layer));
  LOCI_RETURN_IF_ERROR(check_norm(spec.output_norm, spec.norm, spec.hidden));
  LOCI_RETURN_IF_ERROR(check_shape(spec.embedding, spec.vocabulary, spec.hidden));
  return check_shape(spec.output, spec.vocabulary, spec.hidden);
}

}  // namespace loci
