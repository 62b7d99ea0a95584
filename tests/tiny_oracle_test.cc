// SPDX-License-Identifier: Apache-2.0
// The CPU backend against Hugging Face transformers in float64, on random tiny models of every weight
// type, with every instruction set of this machine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "loci/compute/cpu/cpu_backend.h"
#include "loci/model/gguf.h"
#include "loci/model/model.h"
#include "reference/golden_file.h"
#include "reference/sequence_runner.h"

namespace loci {
namespace {

// What a backend rounds on purpose, as the relative error (root mean square) of one rounding:
// - K and V to float16: half a unit in the last of 11 bits, uniform: 2^-12 / sqrt(3) * 2;
constexpr double kStateRounding = 2.8e-4;
// - an activation to int8 in blocks of 32: steps of largest / 127, largest about 2.3 times the root mean
//   square of 32 normal values, an error of step / sqrt(12).
constexpr double kActivationRounding = 2.3 / (127 * 3.4641);
// Roundings add like independent noise; the random weights of these models (their attention is peaked)
// amplify it: by at most this much, more than llama.cpp's own error here (2.4) and far less than any fault.
constexpr double kAmplification = 4;

double relative_bound(const ModelSpec& spec) {
  bool quantised = false;
  for (const LayerSpec& layer : spec.layers) {
    for (const TensorView* tensor : {&layer.query, &layer.value, &layer.ffn.down}) {
      quantised |= tensor_type_info(tensor->type).block_elements > 1;
    }
  }
  // Rounded in a layer: the inputs of q/k/v, of the output projection, of gate/up and of down; at the
  // end the logits' input.
  const double layers = spec.layer_count();
  return quantised ? kAmplification * std::sqrt(4 * layers + 1) * kActivationRounding
                   : kAmplification * std::sqrt(2 * layers) * kStateRounding;
}

struct Case {
  std::string model;
  InstructionSet set;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& model : golden_tiny_names()) {
    for (InstructionSet set : available_instruction_sets()) all.push_back({model, set});
  }
  return all;
}

class TinyOracleTest : public testing::TestWithParam<Case> {};

TEST_P(TinyOracleTest, LogitsAreTransformersWithinTheTypesRounding) {
  Result<GoldenTinyModel> golden = read_golden_tiny(GetParam().model);
  ASSERT_TRUE(golden.ok()) << golden.status().to_string();
  Result<GgufFile> file = GgufFile::open(golden->model_path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  Result<ModelSpec> spec = read_model_spec(*file);
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  Result<std::unique_ptr<Backend>> backend = make_cpu_backend(*spec, {2, GetParam().set});
  ASSERT_TRUE(backend.ok()) << backend.status().to_string();

  SequenceRunner runner(**backend, spec->context_length);
  const double bound = relative_bound(*spec);
  double worst = 0;
  for (const GoldenSequence& sequence : golden->sequences) {
    const std::span<const float> logits = runner.run(sequence.tokens, 0);
    ASSERT_EQ(logits.size(), sequence.tokens.size() * spec->vocabulary);
    for (const GoldenRow& row : sequence.rows) {
      double difference = 0;
      double size = 0;
      for (std::size_t i = 0; i < row.logits.size(); ++i) {
        const double found = logits[row.position * spec->vocabulary + i];
        difference += (found - row.logits[i]) * (found - row.logits[i]);
        size += row.logits[i] * row.logits[i];
      }
      const double relative = std::sqrt(difference / size);
      EXPECT_LT(relative, bound) << sequence.tokens.size() << " tokens, position " << row.position;
      worst = std::max(worst, relative);
    }
  }
  RecordProperty("worst_relative_error", fmt::format("{:.2e} of {:.2e}", worst, bound));
}

INSTANTIATE_TEST_SUITE_P(Models, TinyOracleTest, testing::ValuesIn(cases()), [](const auto& tested) {
  std::string name = tested.param.model + "_" + std::string(instruction_set_name(tested.param.set));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace loci
