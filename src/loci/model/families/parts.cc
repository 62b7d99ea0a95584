// SPDX-License-Identifier: Apache-2.0
#include "loci/model/families/parts.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "loci/model/families/rope.h"

namespace loci {
namespace {

// Limits against absurd files: several times the largest published model in each direction.
constexpr std::uint32_t kMaxLayers = 1024;
constexpr std::uint32_t kMaxHidden = 1u << 17;
constexpr std::uint32_t kMaxHeads = 1024;
constexpr std::uint32_t kMaxHeadDim = 1024;
constexpr std::uint32_t kMaxFfn = 1u << 20;
constexpr std::uint32_t kMaxExperts = 4096;
constexpr std::uint32_t kMaxVocabulary = 1u << 22;

Status read_heads(const SpecReader& reader, ModelSpec& spec) {
  LOCI_ASSIGN_OR_RETURN(spec.heads, reader.count("attention.head_count", 1, kMaxHeads));
  LOCI_ASSIGN_OR_RETURN(spec.kv_heads, reader.count_or("attention.head_count_kv", 1, kMaxHeads, spec.heads));
  if (spec.heads % spec.kv_heads != 0) {
    return invalid_argument(
        fmt::format("expected a divisor of the {} heads, found {}", spec.heads, spec.kv_heads),
        reader.key("attention.head_count_kv"));
  }
  if (!reader.has("attention.key_length") && spec.hidden % spec.heads != 0) {
    return invalid_argument(
        fmt::format("expected a divisor of the hidden size {}, found {}", spec.hidden, spec.heads),
        reader.key("attention.head_count"));
  }
  LOCI_ASSIGN_OR_RETURN(spec.head_dim,
                        reader.count_or("attention.key_length", 2, kMaxHeadDim, spec.hidden / spec.heads));
  if (spec.head_dim < 2 || spec.head_dim > kMaxHeadDim || spec.head_dim % 2 != 0) {
    return invalid_argument(
        fmt::format("expected an even number from 2 to {}, found {}", kMaxHeadDim, spec.head_dim),
        reader.key("attention.key_length"));
  }
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t value_length,
                        reader.count_or("attention.value_length", 1, kMaxHeadDim, spec.head_dim));
  if (value_length != spec.head_dim) {
    return invalid_argument(
        fmt::format("expected {} as in attention.key_length, found {}", spec.head_dim, value_length),
        reader.key("attention.value_length"));
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(spec.head_dim));
  LOCI_ASSIGN_OR_RETURN(const double stated, reader.number_or("attention.scale", 0, 1e3, scale));
  spec.attention_scale = static_cast<float>(stated);
  return {};
}

Status read_vocabulary(SpecReader& reader, ModelSpec& spec) {
  LOCI_ASSIGN_OR_RETURN(const TensorView embedding, reader.source().get_tensor("token_embd.weight"));
  if (embedding.rows > kMaxVocabulary) {
    return invalid_argument(fmt::format("expected at most {} rows, found {}", kMaxVocabulary, embedding.rows),
                            embedding.name);
  }
  spec.vocabulary = static_cast<std::uint32_t>(embedding.rows);
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t stated,
                        reader.count_or("vocab_size", 1, kMaxVocabulary, spec.vocabulary));
  if (stated != spec.vocabulary) {
    return invalid_argument(
        fmt::format("expected {} (the rows of token_embd.weight), found {}", spec.vocabulary, stated),
        reader.key("vocab_size"));
  }
  if (const GgufValue* tokens = reader.source().find("tokenizer.ggml.tokens")) {
    const auto* array = std::get_if<GgufArray>(tokens);
    if (array == nullptr || array->size() != spec.vocabulary) {
      return invalid_argument(
          fmt::format("expected {} entries (the rows of token_embd.weight), found {}", spec.vocabulary,
                      array == nullptr ? describe_type(*tokens) : std::to_string(array->size())),
          "tokenizer.ggml.tokens");
    }
  }
  LOCI_ASSIGN_OR_RETURN(spec.embedding, reader.tensor("token_embd.weight", spec.vocabulary, spec.hidden));
  return {};
}

struct TensorPart {
  TensorView* view;
  const char* name;
  std::uint64_t rows, columns;
  bool required;
};

Status read_tensors(const LayerPart& part, std::initializer_list<TensorPart> tensors) {
  for (const TensorPart& tensor : tensors) {
    const std::string name = part.name(tensor.name);
    LOCI_ASSIGN_OR_RETURN(*tensor.view, tensor.required
                                            ? part.reader.tensor(name, tensor.rows, tensor.columns)
                                            : part.reader.tensor_if_any(name, tensor.rows, tensor.columns));
  }
  return {};
}

// Cuts rows (of a matrix) or columns (of a bias) off the front of `rest`.
TensorView take(TensorView& rest, std::uint64_t count) {
  if (!rest.present()) return {};
  TensorView taken = rest;
  std::uint64_t bytes = 0;
  if (rest.rows > 1) {
    taken.rows = count;
    bytes = taken.size_bytes();
    rest.rows -= count;
  } else {
    taken.columns = count;
    bytes = taken.size_bytes();
    rest.columns -= count;
  }
  rest.data += bytes;
  return taken;
}

// A bias that is cut must have whole blocks on both sides: float types alone, as all files have.
Status check_cuttable(const TensorView& bias) {
  if (!bias.present() || tensor_type_info(bias.type).block_elements == 1) return {};
  return invalid_argument(
      fmt::format("expected a bias of a float type, found {}", tensor_type_info(bias.type).name), bias.name);
}

std::uint64_t query_width(const ModelSpec& spec) { return std::uint64_t{spec.heads} * spec.head_dim; }

}  // namespace

ModelSpec start_spec(const SpecReader& reader) {
  ModelSpec spec;
  spec.family = reader.prefix();
  const Result<std::string> name = reader.source().get_string("general.name");
  spec.display_name = name.ok() ? *name : spec.family;
  return spec;
}

Status read_sizes(SpecReader& reader, ModelSpec& spec) {
  LOCI_ASSIGN_OR_RETURN(spec.hidden, reader.count("embedding_length", 1, kMaxHidden));
  LOCI_ASSIGN_OR_RETURN(spec.context_length, reader.count("context_length", 1, kMaxContext));
  LOCI_ASSIGN_OR_RETURN(const double epsilon,
                        reader.number(spec.norm == NormKind::kRms ? "attention.layer_norm_rms_epsilon"
                                                                  : "attention.layer_norm_epsilon",
                                      0, 1));
  spec.norm_epsilon = static_cast<float>(epsilon);
  LOCI_ASSIGN_OR_RETURN(const bool is_causal, reader.flag_or("attention.causal", true));
  if (!is_causal) {
    return invalid_argument("expected true, a model whose tokens see those before them alone; found false",
                            reader.key("attention.causal"));
  }
  LOCI_RETURN_IF_ERROR(read_heads(reader, spec));
  return read_vocabulary(reader, spec);
}

Status read_dense_sizes(const SpecReader& reader, ModelSpec& spec) {
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t experts, reader.count_or("expert_count", 0, UINT32_MAX, 0));
  if (experts > 0) {
    return invalid_argument(fmt::format("expected a dense model (0 experts), found {} experts", experts),
                            reader.key("expert_count"));
  }
  LOCI_ASSIGN_OR_RETURN(spec.ffn, reader.count("feed_forward_length", 1, kMaxFfn));
  return {};
}

Status read_mixture_sizes(const SpecReader& reader, ModelSpec& spec) {
  LOCI_ASSIGN_OR_RETURN(spec.experts, reader.count("expert_count", 1, kMaxExperts));
  LOCI_ASSIGN_OR_RETURN(spec.expert_uses, reader.count("expert_used_count", 1, spec.experts));
  LOCI_ASSIGN_OR_RETURN(spec.ffn, reader.count("expert_feed_forward_length", 1, kMaxFfn));
  LOCI_ASSIGN_OR_RETURN(spec.expert_weights_normalised, reader.flag_or("expert_weights_norm", true));
  return {};
}

Status read_activation(const SpecReader& reader, Activation otherwise, ModelSpec& spec) {
  spec.activation = otherwise;
  if (!reader.has("activation")) return {};
  LOCI_ASSIGN_OR_RETURN(const std::string name, reader.source().get_string(reader.key("activation")));
  constexpr std::pair<std::string_view, Activation> kNames[] = {{"silu", Activation::kSilu},
                                                                {"gelu", Activation::kGelu},
                                                                {"gelu_tanh", Activation::kGeluTanh},
                                                                {"relu", Activation::kRelu}};
  for (const auto& [known, activation] : kNames) {
    if (name != known) continue;
    spec.activation = activation;
    return {};
  }
  return invalid_argument(fmt::format("expected silu, gelu, gelu_tanh or relu, found \"{}\"", name),
                          reader.key("activation"));
}

RopeLayout permuted_layout(const ModelSource& source) {
  return source.format() == SourceFormat::kGguf ? RopeLayout::kAdjacent : RopeLayout::kHalves;
}

std::string LayerPart::name(std::string_view part) const { return fmt::format("blk.{}.{}", index, part); }

Status read_norm(const LayerPart& part, std::string_view name, NormSpec& norm) {
  LOCI_ASSIGN_OR_RETURN(norm.weight,
                        part.reader.tensor(part.name(fmt::format("{}.weight", name)), 1, part.spec.hidden));
  if (part.spec.norm == NormKind::kLayer) {
    LOCI_ASSIGN_OR_RETURN(norm.bias,
                          part.reader.tensor(part.name(fmt::format("{}.bias", name)), 1, part.spec.hidden));
  }
  return {};
}

Status read_head_norms(const LayerPart& part) {
  return read_tensors(part,
                      {{&part.layer.query_norm.weight, "attn_q_norm.weight", 1, part.spec.head_dim, true},
                       {&part.layer.key_norm.weight, "attn_k_norm.weight", 1, part.spec.head_dim, true}});
}

namespace {

Status read_attention_output(const LayerPart& part) {
  LayerSpec& layer = part.layer;
  return read_tensors(
      part, {{&layer.attention_output, "attn_output.weight", part.spec.hidden, query_width(part.spec), true},
             {&layer.attention_output_bias, "attn_output.bias", 1, part.spec.hidden, false}});
}

}  // namespace

Status read_attention(const LayerPart& part) {
  if (part.reader.exists(part.name("attn_qkv.weight"))) return read_fused_attention(part);
  LayerSpec& layer = part.layer;
  const std::uint64_t queries = query_width(part.spec);
  const std::uint64_t keys = part.spec.kv_width();
  LOCI_RETURN_IF_ERROR(read_tensors(part, {{&layer.query, "attn_q.weight", queries, part.spec.hidden, true},
                                           {&layer.key, "attn_k.weight", keys, part.spec.hidden, true},
                                           {&layer.value, "attn_v.weight", keys, part.spec.hidden, true},
                                           {&layer.query_bias, "attn_q.bias", 1, queries, false},
                                           {&layer.key_bias, "attn_k.bias", 1, keys, false},
                                           {&layer.value_bias, "attn_v.bias", 1, keys, false}}));
  return read_attention_output(part);
}

Status read_fused_attention(const LayerPart& part) {
  LayerSpec& layer = part.layer;
  const std::uint64_t queries = query_width(part.spec);
  const std::uint64_t keys = part.spec.kv_width();
  TensorView fused;
  TensorView bias;
  LOCI_RETURN_IF_ERROR(
      read_tensors(part, {{&fused, "attn_qkv.weight", queries + 2 * keys, part.spec.hidden, true},
                          {&bias, "attn_qkv.bias", 1, queries + 2 * keys, false}}));
  LOCI_RETURN_IF_ERROR(check_cuttable(bias));
  layer.query = take(fused, queries);
  layer.key = take(fused, keys);
  layer.value = fused;
  layer.query_bias = take(bias, queries);
  layer.key_bias = take(bias, keys);
  layer.value_bias = bias;
  return read_attention_output(part);
}

Status read_gated_ffn(const LayerPart& part) {
  FeedForwardSpec& ffn = part.layer.ffn;
  return read_tensors(part, {{&ffn.gate, "ffn_gate.weight", part.spec.ffn, part.spec.hidden, true},
                             {&ffn.up, "ffn_up.weight", part.spec.ffn, part.spec.hidden, true},
                             {&ffn.down, "ffn_down.weight", part.spec.hidden, part.spec.ffn, true}});
}

Status read_fused_ffn(const LayerPart& part) {
  FeedForwardSpec& ffn = part.layer.ffn;
  TensorView fused;
  LOCI_RETURN_IF_ERROR(
      read_tensors(part, {{&fused, "ffn_up.weight", std::uint64_t{2} * part.spec.ffn, part.spec.hidden, true},
                          {&ffn.down, "ffn_down.weight", part.spec.hidden, part.spec.ffn, true}}));
  ffn.gate = take(fused, part.spec.ffn);
  ffn.up = fused;
  return {};
}

Status read_plain_ffn(const LayerPart& part) {
  FeedForwardSpec& ffn = part.layer.ffn;
  return read_tensors(part, {{&ffn.up, "ffn_up.weight", part.spec.ffn, part.spec.hidden, true},
                             {&ffn.up_bias, "ffn_up.bias", 1, part.spec.ffn, false},
                             {&ffn.down, "ffn_down.weight", part.spec.hidden, part.spec.ffn, true},
                             {&ffn.down_bias, "ffn_down.bias", 1, part.spec.hidden, false}});
}

Status read_mixture(const LayerPart& part) {
  FeedForwardSpec& ffn = part.layer.ffn;
  const std::uint64_t experts = part.spec.experts;
  const std::uint64_t inner = part.spec.ffn;
  const std::uint64_t hidden = part.spec.hidden;
  return read_tensors(part, {{&ffn.router, "ffn_gate_inp.weight", experts, hidden, true},
                             {&ffn.router_bias, "ffn_gate_inp.bias", 1, experts, false},
                             {&ffn.gate, "ffn_gate_exps.weight", experts * inner, hidden, true},
                             {&ffn.gate_bias, "ffn_gate_exps.bias", experts, inner, false},
                             {&ffn.up, "ffn_up_exps.weight", experts * inner, hidden, true},
                             {&ffn.up_bias, "ffn_up_exps.bias", experts, inner, false},
                             {&ffn.down, "ffn_down_exps.weight", experts * hidden, inner, true},
                             {&ffn.down_bias, "ffn_down_exps.bias", experts, hidden, false}});
}

Result<std::vector<bool>> read_windows(const SpecReader& reader, const WindowDefaults& defaults,
                                       ModelSpec& spec) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t window,
                        reader.count_or("attention.sliding_window", 0, UINT32_MAX, defaults.window));
  const std::uint32_t layers = spec.layer_count();
  std::vector<bool> windowed(layers);
  const GgufValue* pattern = reader.source().find(reader.key(kPattern));
  if (pattern != nullptr && std::holds_alternative<GgufArray>(*pattern)) {
    LOCI_ASSIGN_OR_RETURN(windowed, reader.flags(kPattern, layers));
  } else {
    LOCI_ASSIGN_OR_RETURN(const std::uint32_t period,
                          reader.count_or(kPattern, 0, UINT32_MAX, defaults.period));
    for (std::uint32_t i = 0; i < layers; ++i) windowed[i] = period == 0 || i % period < period - 1;
  }
  for (std::uint32_t i = 0; i < layers; ++i) {
    windowed[i] = windowed[i] && window > 0;
    spec.layers[i].window = windowed[i] && window < spec.context_length ? window : 0;
  }
  return windowed;
}

Status read_layers(SpecReader& reader, ModelSpec& spec, Status (*read_layer)(const LayerPart& part)) {
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t layers, reader.count("block_count", 1, kMaxLayers));
  for (std::uint32_t i = 0; i < layers; ++i) {
    LayerSpec layer;
    if (!spec.ropes.empty()) layer.rope = 0;
    LOCI_RETURN_IF_ERROR(read_layer({reader, spec, layer, i}));
    spec.layers.push_back(std::move(layer));
  }
  return {};
}

Status finish_spec(SpecReader& reader, ModelSpec& spec) {
  LOCI_ASSIGN_OR_RETURN(spec.output_norm.weight, reader.tensor("output_norm.weight", 1, spec.hidden));
  if (spec.norm == NormKind::kLayer) {
    LOCI_ASSIGN_OR_RETURN(spec.output_norm.bias, reader.tensor("output_norm.bias", 1, spec.hidden));
  }
  LOCI_ASSIGN_OR_RETURN(spec.output, reader.tensor_if_any("output.weight", spec.vocabulary, spec.hidden));
  if (!spec.output.present()) spec.output = spec.embedding;  // tied
  return reader.check_all_used();
}

Result<ModelSpec> read_decoder(SpecReader& reader,
                               Status (*read_feed_forward_sizes)(const SpecReader&, ModelSpec&),
                               Status (*read_layer)(const LayerPart& part)) {
  ModelSpec spec = start_spec(reader);
  LOCI_RETURN_IF_ERROR(read_feed_forward_sizes(reader, spec));
  LOCI_RETURN_IF_ERROR(read_sizes(reader, spec));
  LOCI_ASSIGN_OR_RETURN(const RopeSpec rope, read_rope(reader, spec, {}));
  spec.ropes.push_back(rope);
  LOCI_RETURN_IF_ERROR(read_layers(reader, spec, read_layer));
  LOCI_RETURN_IF_ERROR(read_windows(reader, {}, spec).status());
  LOCI_RETURN_IF_ERROR(finish_spec(reader, spec));
  return spec;
}

}  // namespace loci
