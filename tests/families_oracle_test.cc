// SPDX-License-Identifier: Apache-2.0
// Every family, through both loaders, against Hugging Face transformers in float64: a GGUF file by
// llama.cpp's converter and the directory it was made from are the same model, whose logits are those that
// transformers computes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "loci/compute/cpu/cpu_backend.h"
#include "loci/model/gguf.h"
#include "loci/model/hugging_face/hugging_face_source.h"
#include "loci/model/model.h"
#include "reference/golden_file.h"
#include "reference/reference_model.h"
#include "reference/sequence_runner.h"

namespace loci {
namespace {

struct Loaded {
  std::unique_ptr<ModelSource> source;
  ModelSpec spec;
};

template <class Source>
Result<Loaded> read_source(Result<Source> source) {
  if (!source.ok()) return source.status();
  Loaded loaded{.source = std::make_unique<Source>(std::move(source).value())};
  LOCI_ASSIGN_OR_RETURN(loaded.spec, read_model_spec(*loaded.source));
  return loaded;
}

Result<Loaded> load(const GoldenFamily& golden, SourceFormat format) {
  if (format == SourceFormat::kGguf) return read_source(GgufFile::open(golden.gguf_path));
  return read_source(HuggingFaceSource::open(golden.directory, {}));
}

// GPT-OSS is published in MXFP4; matrices of experts in BF16, which are transposed, are not read.
std::vector<std::string> names_with_directory() {
  std::vector<std::string> names = golden_family_names();
  std::erase(names, "gpt-oss");
  return names;
}

std::string test_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

// Row of Hugging Face's order that is row `index` of GGUF's permuted ones.
std::uint64_t unpermuted(std::uint64_t index, std::uint32_t head_dim) {
  const std::uint64_t within = index % head_dim;
  return index - within + (within % 2) * (head_dim / 2) + within / 2;
}

void expect_equal(const TensorView& gguf, const TensorView& published, std::uint32_t permuted_head_dim = 0) {
  ASSERT_EQ(gguf.present(), published.present()) << gguf.name << published.name;
  if (!gguf.present()) return;
  ASSERT_EQ(gguf.rows, published.rows) << gguf.name;
  ASSERT_EQ(gguf.columns, published.columns) << gguf.name;
  std::vector<float> one(gguf.columns);
  std::vector<float> other(gguf.columns);
  for (std::uint64_t row = 0; row < gguf.rows; ++row) {
    decode_row(gguf, row, one);
    decode_row(published, permuted_head_dim == 0 ? row : unpermuted(row, permuted_head_dim), other);
    ASSERT_EQ(one, other) << gguf.name << " row " << row;
  }
}

void expect_equal(const NormSpec& gguf, const NormSpec& published) {
  expect_equal(gguf.weight, published.weight);
  expect_equal(gguf.bias, published.bias);
}

void expect_equal(const LayerSpec& gguf, const LayerSpec& published, std::uint32_t permuted_head_dim) {
  EXPECT_EQ(gguf.window, published.window);
  EXPECT_EQ(gguf.rope, published.rope);
  expect_equal(gguf.attention_norm, published.attention_norm);
  expect_equal(gguf.query, published.query, permuted_head_dim);
  expect_equal(gguf.key, published.key, permuted_head_dim);
  expect_equal(gguf.value, published.value);
  expect_equal(gguf.query_bias, published.query_bias);
  expect_equal(gguf.key_bias, published.key_bias);
  expect_equal(gguf.value_bias, published.value_bias);
  expect_equal(gguf.query_norm, published.query_norm);
  expect_equal(gguf.key_norm, published.key_norm);
  expect_equal(gguf.attention_sinks, published.attention_sinks);
  expect_equal(gguf.attention_output, published.attention_output);
  expect_equal(gguf.attention_output_bias, published.attention_output_bias);
  expect_equal(gguf.attention_post_norm, published.attention_post_norm);
  expect_equal(gguf.ffn_norm, published.ffn_norm);
  expect_equal(gguf.ffn_post_norm, published.ffn_post_norm);
  expect_equal(gguf.ffn.gate, published.ffn.gate);
  expect_equal(gguf.ffn.gate_bias, published.ffn.gate_bias);
  expect_equal(gguf.ffn.up, published.ffn.up);
  expect_equal(gguf.ffn.up_bias, published.ffn.up_bias);
  expect_equal(gguf.ffn.down, published.ffn.down);
  expect_equal(gguf.ffn.down_bias, published.ffn.down_bias);
  expect_equal(gguf.ffn.router, published.ffn.router);
  expect_equal(gguf.ffn.router_bias, published.ffn.router_bias);
}

// GGUF holds factors of frequencies as float32, config.json as decimal numbers.
void expect_close(const RopeSpec& gguf, const RopeSpec& published) {
  EXPECT_EQ(gguf.dimensions, published.dimensions);
  EXPECT_NEAR(gguf.magnitude, published.magnitude, 1e-7);
  ASSERT_EQ(gguf.inverse_frequency.size(), published.inverse_frequency.size());
  for (std::size_t i = 0; i < gguf.inverse_frequency.size(); ++i) {
    EXPECT_NEAR(gguf.inverse_frequency[i] / published.inverse_frequency[i], 1, 3e-7) << i;
  }
}

class FamiliesTest : public testing::TestWithParam<std::string> {};
class PublishedFamiliesTest : public testing::TestWithParam<std::string> {};

TEST_P(PublishedFamiliesTest, BothFormatsAreOneModel) {
  const GoldenFamily golden = read_golden_family(GetParam()).value();
  const Result<Loaded> gguf = load(golden, SourceFormat::kGguf);
  ASSERT_TRUE(gguf.ok()) << gguf.status().to_string();
  const Result<Loaded> published = load(golden, SourceFormat::kHuggingFace);
  ASSERT_TRUE(published.ok()) << published.status().to_string();
  const ModelSpec& one = gguf->spec;
  const ModelSpec& other = published->spec;
  EXPECT_EQ(one.family, other.family);
  for (const auto field : {&ModelSpec::hidden, &ModelSpec::heads, &ModelSpec::kv_heads, &ModelSpec::head_dim,
                           &ModelSpec::ffn, &ModelSpec::vocabulary, &ModelSpec::context_length,
                           &ModelSpec::experts, &ModelSpec::expert_uses, &ModelSpec::position_offset}) {
    EXPECT_EQ(one.*field, other.*field);
  }
  for (const auto field :
       {&ModelSpec::norm_epsilon, &ModelSpec::attention_scale, &ModelSpec::attention_softcap,
        &ModelSpec::output_softcap, &ModelSpec::embedding_scale}) {
    EXPECT_EQ(one.*field, other.*field);
  }
  EXPECT_EQ(one.norm, other.norm);
  EXPECT_EQ(one.activation, other.activation);
  EXPECT_EQ(one.parallel, other.parallel);
  EXPECT_EQ(one.expert_weights_normalised, other.expert_weights_normalised);
  ASSERT_EQ(one.ropes.size(), other.ropes.size());
  std::uint32_t permuted = 0;
  for (std::size_t i = 0; i < one.ropes.size(); ++i) {
    expect_close(one.ropes[i], other.ropes[i]);
    if (one.ropes[i].layout != other.ropes[i].layout) permuted = one.head_dim;
  }
  expect_equal(one.embedding, other.embedding);
  expect_equal(one.position_embedding, other.position_embedding);
  expect_equal(one.output, other.output);
  expect_equal(one.output_norm, other.output_norm);
  ASSERT_EQ(one.layer_count(), other.layer_count());
  for (std::uint32_t i = 0; i < one.layer_count(); ++i) {
    SCOPED_TRACE(i);
    expect_equal(one.layers[i], other.layers[i], permuted);
  }
}

// Relative error (root mean square) of a row of logits.
double relative_error(const GoldenRow& row, const double* found) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < row.logits.size(); ++i) {
    difference += (found[i] - row.logits[i]) * (found[i] - row.logits[i]);
    size += row.logits[i] * row.logits[i];
  }
  return std::sqrt(difference / size);
}

// Both compute in float64. What is left is the golden file's 10 digits, what a specification holds as
// float32 (scales), and in GGUF the factors of rotation, which turn hundreds of positions.
void expect_reference_logits(const std::string& name, SourceFormat format, double bound) {
  const GoldenFamily golden = read_golden_family(name).value();
  const Result<Loaded> model = load(golden, format);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  double worst = 0;
  for (const GoldenSequence& sequence : golden.sequences) {
    const std::vector<double> logits = reference_logits(model->spec, sequence.tokens);
    ASSERT_EQ(logits.size(), sequence.tokens.size() * model->spec.vocabulary);
    for (const GoldenRow& row : sequence.rows) {
      ASSERT_EQ(row.logits.size(), model->spec.vocabulary);
      const double error = relative_error(row, &logits[row.position * model->spec.vocabulary]);
      EXPECT_LT(error, bound) << sequence.tokens.size() << " tokens, position " << row.position;
      worst = std::max(worst, error);
    }
  }
  testing::Test::RecordProperty("worst_relative_error", fmt::format("{:.2e} of {:.0e}", worst, bound));
}

TEST_P(FamiliesTest, ReferenceOfGgufIsTransformers) {
  expect_reference_logits(GetParam(), SourceFormat::kGguf, 1e-6);
}

TEST_P(PublishedFamiliesTest, ReferenceOfTheDirectoryIsTransformers) {
  expect_reference_logits(GetParam(), SourceFormat::kHuggingFace, 1e-7);
}

// Weights are BF16, so what the CPU backend rounds on purpose is keys and values to float16 (2^-12 / sqrt(3)
// * 2 relative, root mean square) in each layer; roundings add like independent noise, which the random
// weights of these models (their attention is peaked) amplify by at most this much.
constexpr double kStateRounding = 2.8e-4;
// Inputs of quantised matrices (MXFP4) are rounded to int8 in blocks of 32, as in tiny_oracle_test.cc.
constexpr double kActivationRounding = 2.3 / (127 * 3.4641);
// A token whose experts' scores are closer than this at the edge of the chosen ones may be given another
// expert by that rounding, which no bound covers.
constexpr double kNearTie = 0.01;
constexpr double kAmplification = 4;

struct CpuCase {
  std::string name;
  InstructionSet set;
};

std::vector<CpuCase> cpu_cases() {
  std::vector<CpuCase> all;
  for (const std::string& name : golden_family_names()) {
    for (const InstructionSet set : available_instruction_sets()) all.push_back({name, set});
  }
  return all;
}

class FamiliesCpuTest : public testing::TestWithParam<CpuCase> {};

TEST_P(FamiliesCpuTest, LogitsAreTransformersWithinTheStatesRounding) {
  const GoldenFamily golden = read_golden_family(GetParam().name).value();
  const Result<Loaded> model = load(golden, SourceFormat::kGguf);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const std::uint32_t vocabulary = model->spec.vocabulary;
  Result<std::unique_ptr<Backend>> backend = make_cpu_backend(model->spec, {2, GetParam().set});
  ASSERT_TRUE(backend.ok()) << backend.status().to_string();
  SequenceRunner runner(**backend, model->spec.context_length);
  const TensorType experts = model->spec.layers[0].ffn.down.type;
  const double rounding = tensor_type_info(experts).block_elements > 1 ? kActivationRounding : kStateRounding;
  const double bound = kAmplification * std::sqrt(2.0 * model->spec.layer_count()) * rounding;
  double worst = 0;
  int compared = 0;
  for (const GoldenSequence& sequence : golden.sequences) {
    const std::span<const float> logits = runner.run(sequence.tokens, 0);
    const std::vector<double> found(logits.begin(), logits.end());
    std::vector<double> margins;
    if (model->spec.experts > 0) {
      reference_logits(model->spec, sequence.tokens, ReferenceState::kExact, &margins);
    }
    for (const GoldenRow& row : sequence.rows) {
      if (!margins.empty() && margins[row.position] < kNearTie) continue;
      ++compared;
      const double error = relative_error(row, &found[row.position * vocabulary]);
      EXPECT_LT(error, bound) << sequence.tokens.size() << " tokens, position " << row.position;
      worst = std::max(worst, error);
    }
    // In two passes, the bits are the same.
    const std::uint32_t cut = static_cast<std::uint32_t>(sequence.tokens.size()) / 3;
    const std::span<const float> later = runner.run(sequence.tokens, cut);
    for (std::size_t i = 0; i < later.size(); ++i) {
      ASSERT_EQ(static_cast<double>(later[i]), found[cut * vocabulary + i]) << "cut at " << cut;
    }
  }
  EXPECT_GE(compared, 7);
  RecordProperty("worst_relative_error", fmt::format("{:.2e} of {:.1e}", worst, bound));
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesCpuTest, testing::ValuesIn(cpu_cases()), [](const auto& tested) {
  return test_name(fmt::format("{}_{}", tested.param.name, instruction_set_name(tested.param.set)));
});
INSTANTIATE_TEST_SUITE_P(All, FamiliesTest, testing::ValuesIn(golden_family_names()),
                         [](const auto& tested) { return test_name(tested.param); });
INSTANTIATE_TEST_SUITE_P(All, PublishedFamiliesTest, testing::ValuesIn(names_with_directory()),
                         [](const auto& tested) { return test_name(tested.param); });

}  // namespace
}  // namespace loci
