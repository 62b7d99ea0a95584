// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "loci/model/default_model.h"
#include "loci/model/families/family.h"
#include "loci/model/fingerprint.h"
#include "loci/model/model.h"
#include "loci/model/random_model_testing.h"

namespace loci {
namespace {

using Bytes = std::vector<std::byte>;

const RandomModelOptions kSmall{
    .hidden = 24, .heads = 6, .kv_heads = 2, .head_dim = 8, .ffn = 40, .layers = 4};

Result<ModelSpec> read(const GgufWriter& writer, Bytes& bytes) {
  bytes = writer.to_bytes();
  LOCI_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::parse(bytes));
  return read_model_spec(file);
}

ModelSpec read_ok(const RandomModelOptions& options, Bytes& bytes) {
  return read(make_random_model(options).value(), bytes).value();
}

TEST(Llama, ReadsItsSizesAndTensors) {
  Bytes bytes;
  RandomModelOptions options = kSmall;
  options.tied_embedding = false;
  options.biases = true;
  const ModelSpec spec = read_ok(options, bytes);
  EXPECT_EQ(spec.family, "llama");
  EXPECT_EQ(spec.display_name, "Random Llama, seed 1");
  EXPECT_EQ(spec.hidden, 24u);
  EXPECT_EQ(spec.heads, 6u);
  EXPECT_EQ(spec.kv_heads, 2u);
  EXPECT_EQ(spec.head_dim, 8u);
  EXPECT_EQ(spec.kv_width(), 16u);
  EXPECT_EQ(spec.ffn, 40u);
  EXPECT_EQ(spec.layer_count(), 4u);
  EXPECT_EQ(spec.context_length, 2048u);
  EXPECT_EQ(spec.norm_epsilon, 1e-5f);
  EXPECT_EQ(spec.attention_scale, static_cast<float>(1 / std::sqrt(8.0)));
  EXPECT_EQ(spec.ropes.front().layout, RopeLayout::kAdjacent);
  EXPECT_NE(spec.output.data, spec.embedding.data);
  const LayerSpec& layer = spec.layers[3];
  EXPECT_EQ(layer.query.name, "blk.3.attn_q.weight");
  EXPECT_EQ(layer.query.rows, 48u);
  EXPECT_EQ(layer.attention_output.columns, 48u);
  EXPECT_EQ(layer.ffn.down.rows, 24u);
  EXPECT_EQ(layer.key_bias.columns, 16u);
  EXPECT_TRUE(layer.attention_output_bias.present());
  EXPECT_FALSE(read_ok(kSmall, bytes).layers[0].query_bias.present());
}

TEST(Llama, TiesTheOutputWhereItIsAbsent) {
  Bytes bytes;
  const ModelSpec spec = read_ok(kSmall, bytes);
  EXPECT_EQ(spec.output.data, spec.embedding.data);
  EXPECT_EQ(spec.output.rows, spec.vocabulary);
}

TEST(Llama, PutsEveryScalingIntoTheFrequencies) {
  Bytes bytes;
  RandomModelOptions options = kSmall;
  options.rope_base = 500000;
  const ModelSpec plain = read_ok(options, bytes);
  ASSERT_EQ(plain.ropes.front().inverse_frequency.size(), 4u);
  for (int i = 0; i < 4; ++i)
    EXPECT_DOUBLE_EQ(plain.ropes.front().inverse_frequency[i], std::pow(500000.0, -i / 4.0));
  options.rope_linear_factor = 4;
  options.rope_factors = true;
  const ModelSpec scaled = read_ok(options, bytes);
  for (int i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(scaled.ropes.front().inverse_frequency[i],
                     plain.ropes.front().inverse_frequency[i] / 4 / (i < 2 ? 1 : 8));
  }
  GgufWriter unscaled = make_random_model(options).value();
  unscaled.replace("llama.rope.scaling.type", std::string("none"));  // then the factor means nothing
  EXPECT_EQ(read(unscaled, bytes)->ropes.front().inverse_frequency[1],
            plain.ropes.front().inverse_frequency[1]);
  options.rope_dimensions = 4;
  EXPECT_EQ(read_ok(options, bytes).ropes.front().inverse_frequency.size(), 2u);
}

TEST(Llama, DefaultsWhatOlderFilesLeaveOut) {
  const auto drop = [](std::string_view key) {
    GgufWriter writer = make_random_model({.hidden = 32, .heads = 4, .kv_heads = 4, .head_dim = 8}).value();
    writer.remove(key);
    Bytes bytes;
    return read(writer, bytes);  // only numbers are looked at, not tensors
  };
  EXPECT_EQ(drop("llama.attention.head_count_kv")->kv_heads, 4u);
  EXPECT_EQ(drop("llama.attention.key_length")->head_dim, 8u);
  EXPECT_EQ(drop("llama.attention.value_length")->head_dim, 8u);
  EXPECT_EQ(drop("llama.rope.dimension_count")->ropes.front().dimensions, 8u);
  EXPECT_EQ(drop("llama.rope.freq_base")->ropes.front().inverse_frequency[1], std::pow(10000.0, -0.25));
  EXPECT_EQ(drop("llama.block_count").status().to_string(),
            "invalid_argument: llama.block_count: expected an unsigned integer, found no such key");
}

struct Fault {
  std::function<void(GgufWriter&)> make;
  std::string field, message;
};

void expect_faults(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    GgufWriter writer = make_random_model(kSmall).value();
    fault.make(writer);
    Bytes bytes;
    const Status status = read(writer, bytes).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << fault.field;
    EXPECT_EQ(status.field(), fault.field) << status.to_string();
    EXPECT_NE(status.message().find(fault.message), std::string::npos) << status.to_string();
  }
}

Fault number(const std::string& key, GgufValue value, std::string message) {
  return {[=](GgufWriter& writer) { writer.replace(key, value); }, key, std::move(message)};
}

TEST(Llama, RefusesWrongNumbers) {
  expect_faults({
      number("general.architecture", std::string("mamba"),
             "expected one of the known families (falcon, gemma2, gemma3, gpt-oss, llama, opt, phi3, qwen2, "
             "qwen3, qwen3moe, smollm3, starcoder), found \"mamba\""),
      number("llama.block_count", std::uint32_t{0}, "expected a number from 1 to 1024, found 0"),
      number("llama.block_count", std::uint32_t{1025}, "found 1025"),
      number("llama.block_count", std::string("4"), "expected an unsigned integer, found a string"),
      number("llama.embedding_length", std::uint64_t{1} << 40, "from 1 to 131072, found 1099511627776"),
      number("llama.feed_forward_length", std::uint32_t{0}, "from 1 to 1048576, found 0"),
      number("llama.context_length", std::uint32_t{0}, "found 0"),
      number("llama.attention.head_count", std::uint32_t{0}, "found 0"),
      number("llama.attention.head_count_kv", std::uint32_t{4}, "expected a divisor of the 6 heads, found 4"),
      number("llama.attention.key_length", std::uint32_t{7},
             "expected an even number from 2 to 1024, found 7"),
      number("llama.attention.value_length", std::uint32_t{6},
             "expected 8 as in attention.key_length, found 6"),
      number("llama.attention.layer_norm_rms_epsilon", 0.0f,
             "expected a number above 0 and up to 1, found 0"),
      number("llama.attention.layer_norm_rms_epsilon", std::nanf(""), "found nan"),
      number("llama.rope.freq_base", -1.0f, "found -1"),
      number("llama.rope.dimension_count", std::uint32_t{10}, "expected a number from 2 to 8, found 10"),
      number("llama.rope.dimension_count", std::uint32_t{5}, "expected an even number, found 5"),
      number("llama.vocab_size", std::uint32_t{5}, "the rows of token_embd.weight), found 5"),
      number("tokenizer.ggml.tokens", GgufArray{std::vector<std::string>{"a"}},
             "entries (the rows of token_embd.weight), found 1"),
      {[](GgufWriter& w) { w.add("llama.expert_count", std::uint32_t{8}); }, "llama.expert_count",
       "expected a dense model (0 experts), found 8 experts"},
      {[](GgufWriter& w) { w.add("llama.attention.causal", false); }, "llama.attention.causal",
       "found false"},
      {[](GgufWriter& w) { w.add("llama.rope.scaling.type", std::string("dynamic")); },
       "llama.rope.scaling.type", "expected none, linear, llama3, yarn or longrope, found \"dynamic\""},
      {[](GgufWriter& w) { w.add("llama.rope.scaling.factor", 0.0f); }, "llama.rope.scaling.factor",
       "found 0"},
  });
}

TEST(Llama, RefusesWrongTensors) {
  const auto reshape = [](const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    return [=](GgufWriter& writer) {
      writer.remove_tensor(name);
      writer.add_tensor(name, TensorType::kF32, rows, columns, Bytes(rows * columns * 4));
    };
  };
  std::vector<Fault> faults = {
      {reshape("blk.3.attn_q.weight", 48, 23), "blk.3.attn_q.weight", "expected [48, 24], found [48, 23]"},
      {reshape("token_embd.weight", 10, 24), "llama.vocab_size", "expected 10"},
      {reshape("output_norm.weight", 1, 25), "output_norm.weight", "expected [1, 24], found [1, 25]"},
      {[](GgufWriter& w) { w.remove_tensor("output_norm.weight"); }, "output_norm.weight",
       "has none of this name"},
      {[](GgufWriter& w) {
         w.add_tensor("blk.0.ffn_gate_inp.weight", TensorType::kF32, 8, 24, Bytes(8 * 24 * 4));
       },
       "blk.0.ffn_gate_inp.weight", "expected only tensors that the family llama computes with"},
      {[](GgufWriter& w) { w.add_tensor("blk.1.attn_k.bias", TensorType::kF32, 1, 17, Bytes(68)); },
       "blk.1.attn_k.bias", "expected [1, 16], found [1, 17]"},
      {[](GgufWriter& w) { w.add_tensor("rope_freqs.weight", TensorType::kF32, 1, 4, Bytes(16)); },
       "rope_freqs.weight", "expected factors above 0, found 0 at index 0"},
      {[](GgufWriter& w) {
         w.remove_tensor("blk.2.ffn_up.weight");
         w.add_raw_tensor("blk.2.ffn_up.weight", 16, {256, 2}, Bytes(132));
       },
       "blk.2.ffn_up.weight", "found IQ2_XXS (type number 16)"},
  };
  for (const char* name : {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate",
                           "ffn_up", "ffn_down"}) {
    const std::string tensor = std::string("blk.1.") + name + ".weight";
    faults.push_back({reshape(tensor, 7, 5), tensor, "found [7, 5]"});
    faults.push_back({[=](GgufWriter& w) { w.remove_tensor(tensor); }, tensor, "has none of this name"});
  }
  expect_faults(faults);
}

TEST(Fingerprint, ChangesWithWhateverChangesTheModel) {
  Bytes bytes;
  const auto fingerprint = [&](RandomModelOptions options) { return read_ok(options, bytes).fingerprint; };
  const auto base = fingerprint(kSmall);
  EXPECT_EQ(base, fingerprint(kSmall));
  const auto differs = [&](auto change) {
    RandomModelOptions options = kSmall;
    change(options);
    return fingerprint(options) != base;
  };
  EXPECT_TRUE(differs([](auto& o) { o.seed = 2; }));
  EXPECT_TRUE(differs([](auto& o) { o.rope_base = 10001; }));
  EXPECT_TRUE(differs([](auto& o) { o.rope_factors = true; }));
  EXPECT_TRUE(differs([](auto& o) { o.type = TensorType::kF16; }));
  EXPECT_TRUE(differs([](auto& o) { o.layers = 3; }));
  EXPECT_TRUE(differs([](auto& o) { o.biases = true; }));

  // Every tensor's last byte counts; names for people do not.
  GgufWriter writer = make_random_model(kSmall).value();
  writer.replace("general.name", std::string("another"));
  EXPECT_EQ(read(writer, bytes)->fingerprint, base);
  bytes = make_random_model(kSmall)->to_bytes();
  const GgufFile file = GgufFile::parse(bytes).value();
  for (const TensorView& tensor : file.tensors()) {
    std::byte& last = bytes[static_cast<std::size_t>(tensor.row(tensor.rows - 1).data() - bytes.data()) +
                            tensor.row_bytes() - 1];
    last ^= std::byte{1};
    EXPECT_NE(read_model_spec(file)->fingerprint, base) << tensor.name;
    last ^= std::byte{1};
  }
  EXPECT_EQ(read_model_spec(file)->fingerprint, base);
}

TEST(RandomModel, MakesEveryType) {
  for (const TensorTypeInfo& info : supported_tensor_types()) {
    Bytes bytes;
    const ModelSpec spec = read_ok(
        {.type = info.type, .hidden = 256, .heads = 8, .kv_heads = 2, .head_dim = 32, .ffn = 512}, bytes);
    EXPECT_EQ(spec.layers[1].ffn.down.type, info.type);
    double squares = 0;
    std::vector<float> row(512);
    for (std::uint64_t i = 0; i < 256; ++i) {
      decode_row(spec.layers[1].ffn.down, i, row);
      for (const float value : row) squares += static_cast<double>(value) * value;
    }
    // Rows keep a vector's size, but for what rounding to two or three bits, or to 4-bit floats, takes or
    // adds.
    const bool coarse =
        info.type == TensorType::kQ2_K || info.type == TensorType::kQ3_K || info.type == TensorType::kMXFP4;
    EXPECT_NEAR(squares / 256, 1.0, coarse ? 0.15 : 0.03) << info.name;
  }
}

TEST(RandomModel, RefusesWhatHasNoBlocks) {
  EXPECT_EQ(make_random_model({.type = TensorType::kQ6_K}).status().field(), "hidden");
  EXPECT_EQ(make_random_model({.type = TensorType::kQ4_0, .ffn = 100}).status().field(), "ffn");
  EXPECT_EQ(make_random_model({.vocabulary = 100}).status().field(), "vocabulary");
  EXPECT_EQ(make_random_model({.kv_heads = 3}).status().field(), "kv_heads");
  EXPECT_EQ(make_random_model({.layers = 0}).status().field(), "layers");
  EXPECT_EQ(find_random_model_shape("huge").status().field(), "shape");
  Bytes bytes;
  EXPECT_EQ(read_ok({.vocabulary = 12345}, bytes).vocabulary, 12345u);
  EXPECT_EQ(read_ok({.vocabulary = 50, .tokenizer = false}, bytes).vocabulary, 50u);
}

TEST(DefaultModel, IsReadWhole) {
  const Result<GgufFile> file = GgufFile::open(default_model_path());
  ASSERT_TRUE(file.ok()) << file.status().to_string() << "\n" << kDefaultModelHint;
  const ModelSpec spec = read_model_spec(file.value()).value();
  EXPECT_EQ(spec.layer_count(), 30u);
  EXPECT_EQ(spec.hidden, 576u);
  EXPECT_EQ(spec.heads, 9u);
  EXPECT_EQ(spec.kv_heads, 3u);
  EXPECT_EQ(spec.head_dim, 64u);
  EXPECT_EQ(spec.ffn, 1536u);
  EXPECT_EQ(spec.vocabulary, 49152u);
  EXPECT_EQ(spec.context_length, 8192u);
  EXPECT_EQ(spec.ropes.front().dimensions, 64u);
  EXPECT_DOUBLE_EQ(spec.ropes.front().inverse_frequency[31], std::pow(100000.0, -62.0 / 64));
  EXPECT_EQ(spec.embedding.type, TensorType::kQ8_0);
  EXPECT_EQ(spec.output.data, spec.embedding.data);
  EXPECT_EQ(spec.layers[29].ffn.down.type, TensorType::kQ4_1);
  std::vector<float> row(576);
  for (std::uint64_t token = 0; token < spec.vocabulary; ++token) {
    decode_row(spec.embedding, token, row);
    for (const float value : row) ASSERT_TRUE(std::fabs(value) < 10) << token;
  }
}

}  // namespace
}  // namespace loci
