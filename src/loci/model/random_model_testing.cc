// SPDX-License-Identifier: Apache-2.0
#include "loci/model/random_model_testing.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "loci/base/random.h"
#include "loci/model/quantize.h"
#include "loci/model/random_vocabulary_testing.h"

namespace loci {
namespace {

struct Shape {
  std::string_view name;
  RandomModelOptions options;
};

const Shape kShapes[] = {
    {"tiny", {}},
    {"tiny-wide", {.type = TensorType::kF16, .kv_heads = 4, .layers = 3}},
    {"tiny-windows", {.layers = 4, .vocabulary = 8192, .window = 128}},
    {"tiny-narrow",
     {.type = TensorType::kF16,
      .hidden = 128,
      .heads = 4,
      .kv_heads = 1,
      .head_dim = 64,
      .ffn = 256,
      .layers = 6,
      .context_length = 8192,
      .vocabulary = 8192,
      .window = 512,
      .window_period = 6}},
    {"smollm2-135m",
     {.type = TensorType::kQ4_1,
      .embedding_type = TensorType::kQ8_0,
      .hidden = 576,
      .heads = 9,
      .kv_heads = 3,
      .head_dim = 64,
      .ffn = 1536,
      .layers = 30,
      .context_length = 8192,
      .vocabulary = 49152,
      .rope_base = 100000}},
    // Rows of 256 and more: what the K-quants need.
    {"llama-150m",
     {.type = TensorType::kQ4_1,
      .embedding_type = TensorType::kQ8_0,
      .hidden = 768,
      .heads = 12,
      .kv_heads = 4,
      .head_dim = 64,
      .ffn = 2048,
      .layers = 18,
      .context_length = 8192,
      .vocabulary = 49152,
      .rope_base = 100000}},
    // As many heads of keys and values as make hidden states a quarter of them.
    {"qwen3-0.6b",
     {.type = TensorType::kQ8_0,
      .hidden = 1024,
      .heads = 16,
      .kv_heads = 8,
      .head_dim = 128,
      .ffn = 3072,
      .layers = 28,
      .context_length = 40960,
      .vocabulary = 32000,
      .rope_base = 1000000}},
    // The first layers of Llama 2 7B.
    {"llama2-7b-4-layers",
     {.type = TensorType::kQ8_0,
      .hidden = 4096,
      .heads = 32,
      .kv_heads = 32,
      .head_dim = 128,
      .ffn = 11008,
      .layers = 4,
      .context_length = 4096,
      .vocabulary = 32000}},
    {"llama-1b",
     {.type = TensorType::kQ4_1,
      .embedding_type = TensorType::kQ8_0,
      .hidden = 2048,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 64,
      .ffn = 8192,
      .layers = 16,
      .context_length = 131072,
      .vocabulary = 128256,
      .rope_base = 500000,
      .rope_factors = true}},
    {"llama-8b",
     {.type = TensorType::kQ4_1,
      .embedding_type = TensorType::kQ8_0,
      .hidden = 4096,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 128,
      .ffn = 14336,
      .layers = 32,
      .context_length = 131072,
      .vocabulary = 128256,
      .rope_base = 500000,
      .rope_factors = true}},
};

// Adds the tensors of one model; each has its own seed, drawn in order.
class TensorMaker {
 public:
  TensorMaker(GgufWriter& writer, std::uint64_t seed) : writer_(&writer), seeds_(seed) {}

  // Uniform around `mean` with this standard deviation.
  void add(std::string name, TensorType type, std::uint64_t rows, std::uint64_t columns, double mean,
           double deviation) {
    const std::uint64_t seed = seeds_.next();
    const double width = deviation * std::sqrt(12.0);
    writer_->add_tensor(std::move(name), type, rows, columns,
                        [=](std::uint64_t row, std::span<std::byte> bytes) {
                          std::vector<float> values(columns);
                          for (std::uint64_t i = 0; i < columns; ++i) {
                            const double unit = unit_interval(random_word(seed, row * columns + i));
                            values[i] = static_cast<float>(mean + width * (unit - 0.5));
                          }
                          encode_row(type, values, bytes);
                        });
  }
  // A matrix that keeps the size of what it multiplies.
  void add_matrix(std::string name, TensorType type, std::uint64_t rows, std::uint64_t columns) {
    add(std::move(name), type, rows, columns, 0, 1 / std::sqrt(static_cast<double>(columns)));
  }
  void add_norm(std::string name, std::uint64_t columns) {
    add(std::move(name), TensorType::kF32, 1, columns, 1, 0.1);
  }

 private:
  GgufWriter* writer_;
  Random seeds_;
};

void add_layer(TensorMaker& maker, const RandomModelOptions& options, std::uint32_t index) {
  const std::string block = fmt::format("blk.{}.", index);
  const std::uint64_t query_width = std::uint64_t{options.heads} * options.head_dim;
  const std::uint64_t kv_width = std::uint64_t{options.kv_heads} * options.head_dim;
  maker.add_norm(block + "attn_norm.weight", options.hidden);
  maker.add_matrix(block + "attn_q.weight", options.type, query_width, options.hidden);
  maker.add_matrix(block + "attn_k.weight", options.type, kv_width, options.hidden);
  maker.add_matrix(block + "attn_v.weight", options.type, kv_width, options.hidden);
  maker.add_matrix(block + "attn_output.weight", options.type, options.hidden, query_width);
  if (options.biases) {
    maker.add(block + "attn_q.bias", TensorType::kF32, 1, query_width, 0, 0.1);
    maker.add(block + "attn_k.bias", TensorType::kF32, 1, kv_width, 0, 0.1);
    maker.add(block + "attn_v.bias", TensorType::kF32, 1, kv_width, 0, 0.1);
    maker.add(block + "attn_output.bias", TensorType::kF32, 1, options.hidden, 0, 0.1);
  }
  maker.add_norm(block + "ffn_norm.weight", options.hidden);
  maker.add_matrix(block + "ffn_gate.weight", options.type, options.ffn, options.hidden);
  maker.add_matrix(block + "ffn_up.weight", options.type, options.ffn, options.hidden);
  maker.add_matrix(block + "ffn_down.weight", options.type, options.hidden, options.ffn);
}

void add_rope_factors(GgufWriter& writer, std::uint32_t pairs) {
  writer.add_tensor("rope_freqs.weight", TensorType::kF32, 1, pairs,
                    [pairs](std::uint64_t, std::span<std::byte> bytes) {
                      std::vector<float> factors(pairs, 1.0f);
                      for (std::uint32_t i = pairs / 2; i < pairs; ++i) factors[i] = 8.0f;
                      encode_row(TensorType::kF32, factors, bytes);
                    });
}

void add_sizes(GgufWriter& writer, const RandomModelOptions& options, std::uint32_t vocabulary) {
  writer.add("general.architecture", std::string("llama"));
  writer.add("general.name", fmt::format("Random Llama, seed {}", options.seed));
  writer.add("llama.block_count", options.layers);
  writer.add("llama.context_length", options.context_length);
  writer.add("llama.embedding_length", options.hidden);
  writer.add("llama.feed_forward_length", options.ffn);
  writer.add("llama.attention.head_count", options.heads);
  writer.add("llama.attention.head_count_kv", options.kv_heads);
  writer.add("llama.attention.key_length", options.head_dim);
  writer.add("llama.attention.value_length", options.head_dim);
  writer.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.add("llama.rope.dimension_count",
             options.rope_dimensions == 0 ? options.head_dim : options.rope_dimensions);
  writer.add("llama.rope.freq_base", static_cast<float>(options.rope_base));
  if (options.rope_linear_factor != 1) {
    writer.add("llama.rope.scaling.type", std::string("linear"));
    writer.add("llama.rope.scaling.factor", static_cast<float>(options.rope_linear_factor));
  }
  if (options.window != 0) {
    writer.add("llama.attention.sliding_window", options.window);
    writer.add("llama.attention.sliding_window_pattern", options.window_period);
  }
  writer.add("llama.vocab_size", vocabulary);
}

void add_tokenizer(GgufWriter& writer, BpeVocabulary vocabulary) {
  add_bpe_vocabulary(writer, std::move(vocabulary));
  writer.add("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
  writer.add("tokenizer.ggml.padding_token_id", std::uint32_t{2});
  writer.add("tokenizer.ggml.add_bos_token", false);
  writer.add("tokenizer.chat_template", std::string(kChatMlTemplate));
}

Status check_options(const RandomModelOptions& options) {
  const TensorType embedding_type = options.embedding_type.value_or(options.type);
  struct Size {
    const char* field;
    std::uint64_t value;
    std::uint32_t multiple;
  };
  const std::uint32_t block = tensor_type_info(options.type).block_elements;
  const Size sizes[] = {
      {"hidden", options.hidden, block},
      {"hidden", options.hidden, tensor_type_info(embedding_type).block_elements},
      {"heads * head_dim", std::uint64_t{options.heads} * options.head_dim, block},
      {"ffn", options.ffn, block},
      {"kv_heads", options.kv_heads, 1},
      {"layers", options.layers, 1},
      {"context_length", options.context_length, 1},
      {"head_dim", options.head_dim, 2},
  };
  for (const Size& size : sizes) {
    if (size.value == 0 || size.value % size.multiple != 0) {
      return invalid_argument(
          fmt::format("expected a multiple of {} above 0, found {}", size.multiple, size.value), size.field);
    }
  }
  if (options.heads % options.kv_heads != 0) {
    return invalid_argument(
        fmt::format("expected a divisor of {} heads, found {}", options.heads, options.kv_heads), "kv_heads");
  }
  return {};
}

}  // namespace

Result<GgufWriter> make_random_model(const RandomModelOptions& options) {
  LOCI_RETURN_IF_ERROR(check_options(options));
  GgufWriter writer;
  std::uint32_t vocabulary = options.vocabulary == 0 ? 256 : options.vocabulary;
  BpeVocabulary bpe;
  if (options.tokenizer) {
    bpe = make_bpe_vocabulary(options.vocabulary);
    vocabulary = static_cast<std::uint32_t>(bpe.tokens.size());
    if (options.vocabulary != 0 && options.vocabulary != vocabulary) {
      return invalid_argument(fmt::format("expected a vocabulary near {} (from {}), found {}", vocabulary,
                                          kSmallestVocabulary, options.vocabulary),
                              "vocabulary");
    }
  }
  add_sizes(writer, options, vocabulary);
  if (options.tokenizer) add_tokenizer(writer, std::move(bpe));

  TensorMaker maker(writer, options.seed);
  const TensorType embedding_type = options.embedding_type.value_or(options.type);
  // Logits of a standard deviation near 3: some tokens are likely, none is certain.
  const double deviation = 3 / std::sqrt(static_cast<double>(options.hidden));
  maker.add("token_embd.weight", embedding_type, vocabulary, options.hidden, 0, deviation);
  for (std::uint32_t i = 0; i < options.layers; ++i) add_layer(maker, options, i);
  maker.add_norm("output_norm.weight", options.hidden);
  if (!options.tied_embedding) {
    maker.add("output.weight", embedding_type, vocabulary, options.hidden, 0, deviation);
  }
  if (options.rope_factors) {
    add_rope_factors(writer, (options.rope_dimensions == 0 ? options.head_dim : options.rope_dimensions) / 2);
  }
  return writer;
}

Result<RandomModelOptions> find_random_model_shape(std::string_view name) {
  std::string known;
  for (const Shape& shape : kShapes) {
    if (shape.name == name) return shape.options;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", shape.name);
  }
  return invalid_argument(fmt::format("expected one of {}, found \"{}\"", known, name), "shape");
}

std::vector<std::string_view> random_model_shapes() {
  std::vector<std::string_view> names;
  for (const Shape& shape : kShapes) names.push_back(shape.name);
  return names;
}

}  // namespace loci
