// Llama 1, 2, 3 and what shares their layer (SmolLM2, TinyLlama, Mistral 7B as converted to "llama").
// GGUF's converter has permuted the query and key rows, so that adjacent dimensions rotate together.
#include <fmt/format.h>

#include <cmath>

#include "loci/model/families/family.h"
#include "loci/model/families/spec_reader.h"

namespace loci {
namespace {

// Limits against absurd files: several times the largest published Llama in each direction.
constexpr std::uint32_t kMaxLayers = 1024;
constexpr std::uint32_t kMaxHidden = 1u << 17;
constexpr std::uint32_t kMaxHeads = 1024;
constexpr std::uint32_t kMaxHeadDim = 1024;
constexpr std::uint32_t kMaxFfn = 1u << 20;
constexpr std::uint32_t kMaxVocabulary = 1u << 22;
constexpr std::uint32_t kMaxContext = 1u << 27;

Status check_dense(const SpecReader& reader) {
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t experts, reader.count_or("expert_count", 0, UINT32_MAX, 0));
  if (experts > 0) {
    return invalid_argument(fmt::format("expected a dense model (0 experts), found {} experts", experts),
                            reader.key("expert_count"));
  }
  return {};
}

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
  spec.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
  return {};
}

Status read_sizes(const ModelSource& source, const SpecReader& reader, ModelSpec& spec) {
  LOCI_ASSIGN_OR_RETURN(spec.hidden, reader.count("embedding_length", 1, kMaxHidden));
  LOCI_ASSIGN_OR_RETURN(spec.ffn, reader.count("feed_forward_length", 1, kMaxFfn));
  LOCI_ASSIGN_OR_RETURN(spec.context_length, reader.count("context_length", 1, kMaxContext));
  LOCI_ASSIGN_OR_RETURN(const double epsilon, reader.number("attention.layer_norm_rms_epsilon", 0, 1));
  spec.norm_epsilon = static_cast<float>(epsilon);
  LOCI_RETURN_IF_ERROR(read_heads(reader, spec));

  LOCI_ASSIGN_OR_RETURN(const TensorView embedding, source.get_tensor("token_embd.weight"));
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
  if (const GgufValue* tokens = source.find("tokenizer.ggml.tokens")) {
    const auto* array = std::get_if<GgufArray>(tokens);
    if (array == nullptr || array->size() != spec.vocabulary) {
      return invalid_argument(
          fmt::format("expected {} entries (the rows of token_embd.weight), found {}", spec.vocabulary,
                      array == nullptr ? describe_type(*tokens) : std::to_string(array->size())),
          "tokenizer.ggml.tokens");
    }
  }
  return {};
}

// By how much positions are divided.
Result<double> read_linear_factor(const ModelSource& source, const SpecReader& reader) {
  if (reader.has("rope.scaling.type")) {
    LOCI_ASSIGN_OR_RETURN(const std::string type, source.get_string(reader.key("rope.scaling.type")));
    if (type == "none") return 1.0;
    if (type != "linear") {
      return invalid_argument(fmt::format("expected \"none\" or \"linear\", found \"{}\"", type),
                              reader.key("rope.scaling.type"));
    }
  }
  // The older key means the same.
  const char* key = reader.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  return reader.number_or(key, 0, 1e6, 1.0);
}

Status read_rope(const ModelSource& source, SpecReader& reader, ModelSpec& spec) {
  RopeSpec& rope = spec.ropes.emplace_back();
  rope.layout = source.format() == SourceFormat::kGguf ? RopeLayout::kAdjacent : RopeLayout::kHalves;
  LOCI_ASSIGN_OR_RETURN(rope.dimensions,
                        reader.count_or("rope.dimension_count", 2, spec.head_dim, spec.head_dim));
  if (rope.dimensions % 2 != 0) {
    return invalid_argument(fmt::format("expected an even number, found {}", rope.dimensions),
                            reader.key("rope.dimension_count"));
  }
  LOCI_ASSIGN_OR_RETURN(const double base, reader.number_or("rope.freq_base", 0, 1e12, 10000.0));
  LOCI_ASSIGN_OR_RETURN(const double factor, read_linear_factor(source, reader));
  LOCI_ASSIGN_OR_RETURN(const TensorView factors,
                        reader.tensor_if_any("rope_freqs.weight", 1, rope.dimensions / 2));
  std::vector<float> divisors(rope.dimensions / 2, 1.0f);
  if (factors.present()) decode_row(factors, 0, divisors);
  for (std::uint32_t i = 0; i < rope.dimensions / 2; ++i) {
    if (!(divisors[i] > 0 && std::isfinite(divisors[i]))) {
      return invalid_argument(fmt::format("expected factors above 0, found {} at index {}", divisors[i], i),
                              factors.name);
    }
    const double frequency = std::pow(base, -2.0 * i / rope.dimensions);
    rope.inverse_frequency.push_back(frequency / factor / static_cast<double>(divisors[i]));
  }
  return {};
}

Result<LayerSpec> read_layer(SpecReader& reader, const ModelSpec& spec, std::uint32_t index) {
  const std::string block = fmt::format("blk.{}.", index);
  const std::uint64_t query_width = std::uint64_t{spec.heads} * spec.head_dim;
  LayerSpec layer;
  layer.rope = 0;
  struct Part {
    TensorView* view;
    const char* name;
    std::uint64_t rows, columns;
  };
  const Part required[] = {
      {&layer.attention_norm.weight, "attn_norm.weight", 1, spec.hidden},
      {&layer.query, "attn_q.weight", query_width, spec.hidden},
      {&layer.key, "attn_k.weight", spec.kv_width(), spec.hidden},
      {&layer.value, "attn_v.weight", spec.kv_width(), spec.hidden},
      {&layer.attention_output, "attn_output.weight", spec.hidden, query_width},
      {&layer.ffn_norm.weight, "ffn_norm.weight", 1, spec.hidden},
      {&layer.ffn.gate, "ffn_gate.weight", spec.ffn, spec.hidden},
      {&layer.ffn.up, "ffn_up.weight", spec.ffn, spec.hidden},
      {&layer.ffn.down, "ffn_down.weight", spec.hidden, spec.ffn},
  };
  for (const Part& part : required) {
    LOCI_ASSIGN_OR_RETURN(*part.view, reader.tensor(block + part.name, part.rows, part.columns));
  }
  const Part biases[] = {
      {&layer.query_bias, "attn_q.bias", 1, query_width},
      {&layer.key_bias, "attn_k.bias", 1, spec.kv_width()},
      {&layer.value_bias, "attn_v.bias", 1, spec.kv_width()},
      {&layer.attention_output_bias, "attn_output.bias", 1, spec.hidden},
  };
  for (const Part& part : biases) {
    LOCI_ASSIGN_OR_RETURN(*part.view, reader.tensor_if_any(block + part.name, part.rows, part.columns));
  }
  reader.ignore(block + "attn_rot_embd");  // a table that old converters wrote and nobody reads
  return layer;
}

}  // namespace

Result<ModelSpec> read_llama(const ModelSource& source) {
  SpecReader reader(source, "llama");
  ModelSpec spec;
  spec.family = "llama";
  spec.display_name =
      source.get_string("general.name").ok() ? source.get_string("general.name").value() : spec.family;
  LOCI_RETURN_IF_ERROR(check_dense(reader));
  LOCI_RETURN_IF_ERROR(read_sizes(source, reader, spec));
  LOCI_RETURN_IF_ERROR(read_rope(source, reader, spec));
  LOCI_ASSIGN_OR_RETURN(spec.embedding, reader.tensor("token_embd.weight", spec.vocabulary, spec.hidden));
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t layers, reader.count("block_count", 1, kMaxLayers));
  for (std::uint32_t i = 0; i < layers; ++i) {
    LOCI_ASSIGN_OR_RETURN(LayerSpec layer, read_layer(reader, spec, i));
    spec.layers.push_back(std::move(layer));
  }
  LOCI_ASSIGN_OR_RETURN(spec.output_norm.weight, reader.tensor("output_norm.weight", 1, spec.hidden));
  LOCI_ASSIGN_OR_RETURN(spec.output, reader.tensor_if_any("output.weight", spec.vocabulary, spec.hidden));
  if (!spec.output.present()) spec.output = spec.embedding;  // tied
  LOCI_RETURN_IF_ERROR(reader.check_all_used());
  return spec;
}

}  // namespace loci
