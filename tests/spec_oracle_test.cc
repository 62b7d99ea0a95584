// SPDX-License-Identifier: Apache-2.0
// The CPU backend against the plain float64 model, on random specs: every part of ModelSpec, alone and in
// company, with every instruction set of this machine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "loci/base/random.h"
#include "loci/compute/cpu/cpu_backend.h"
#include "loci/model/random_spec_testing.h"
#include "reference/reference_model.h"
#include "reference/sequence_runner.h"

namespace loci {
namespace {

constexpr std::uint64_t kSeeds = 64;

// As in tiny_oracle_test.cc: the relative error (root mean square) that one rounding of the state, and one
// of a product's input, makes; roundings add like independent noise, which peaked attention, experts'
// weights and norms amplify.
constexpr double kStateRounding = 2.8e-4;
constexpr double kActivationRounding = 2.3 / (127 * 3.4641);
constexpr double kAmplification = 4;

bool quantised(const ModelSpec& spec) {
  return tensor_type_info(spec.layers.front().query.type).block_elements > 1;
}

double relative_bound(const ModelSpec& spec) {
  const double layers = spec.layer_count();
  return quantised(spec) ? kAmplification * std::sqrt(4 * layers + 1) * kActivationRounding
                         : kAmplification * std::sqrt(2 * layers) * kStateRounding;
}

std::string names(const std::set<std::string>& features) {
  std::string all;
  for (const std::string& feature : features) all.append(all.empty() ? "" : ", ").append(feature);
  return all;
}

class SpecOracleTest : public testing::TestWithParam<std::uint64_t> {};

TEST_P(SpecOracleTest, LogitsAreTheReferencesWithinTheTypesRounding) {
  const auto made = make_random_spec(GetParam());
  const ModelSpec& spec = made->spec;
  Random random(GetParam());
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < 40; ++i)
    tokens.emplace_back(static_cast<std::uint32_t>(random.below(spec.vocabulary)));
  std::vector<double> margins;
  const std::vector<double> expected = reference_logits(spec, tokens, ReferenceState::kExact, &margins);
  // Where rounding may change the choice of an expert the results part: rows up to there are compared.
  const double bound = relative_bound(spec);
  std::size_t rows = 0;
  double worst = 0;
  while (rows < tokens.size() && margins[rows] > 8 * bound) ++rows;
  for (const InstructionSet set : available_instruction_sets()) {
    Result<std::unique_ptr<Backend>> backend = make_cpu_backend(spec, {2, set});
    ASSERT_TRUE(backend.ok()) << backend.status().to_string();
    SequenceRunner runner(**backend, static_cast<std::uint32_t>(tokens.size()));
    const std::span<const float> logits = runner.run(tokens, 0);
    ASSERT_EQ(logits.size(), expected.size());
    for (std::size_t row = 0; row < rows; ++row) {
      double difference = 0, size = 0;
      for (std::size_t i = row * spec.vocabulary; i < (row + 1) * spec.vocabulary; ++i) {
        difference += (logits[i] - expected[i]) * (logits[i] - expected[i]);
        size += expected[i] * expected[i];
      }
      worst = std::max(worst, std::sqrt(difference / size));
      ASSERT_LT(std::sqrt(difference / size), bound)
          << instruction_set_name(set) << ", row " << row << ": " << names(made->features);
    }
  }
  RecordProperty("rows", static_cast<int>(rows));
  RecordProperty("worst_relative_error", fmt::format("{:.2e} of {:.2e}", worst, bound));
}

INSTANTIATE_TEST_SUITE_P(Specs, SpecOracleTest, testing::Range<std::uint64_t>(1, kSeeds + 1));

TEST(RandomSpecTest, EveryFeatureIsDrawn) {
  std::set<std::string> drawn;
  std::size_t compared = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto made = make_random_spec(seed);
    drawn.merge(made->features);
    compared += made->spec.experts > 0 ? 1 : 0;
  }
  std::set<std::string> all = {"layer norm",
                               "norm bias",
                               "attention softcap",
                               "output softcap",
                               "gated",
                               "biases",
                               "parallel",
                               "no norm before",
                               "norm after",
                               "shared norm",
                               "norm of heads",
                               "mixture",
                               "normalised",
                               "magnitude",
                               "router as the rest",
                               "embedding scale",
                               "adjacent pairs",
                               "partial rotation",
                               "learned positions",
                               "sinks",
                               "window",
                               "no rotation",
                               "untied",
                               "many heads",
                               "dense layer beside mixtures"};
  for (int i = 0; i < 5; ++i) all.insert("activation " + std::to_string(i));
  for (const int head_dim : {8, 16, 24, 40, 64, 80, 128, 256})
    all.insert("head_dim " + std::to_string(head_dim));
  for (const char* type : {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q6_k"}) all.insert(type);
  EXPECT_EQ(drawn, all);
  EXPECT_GE(compared, 10u);
}

}  // namespace
}  // namespace loci
