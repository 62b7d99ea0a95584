// SPDX-License-Identifier: Apache-2.0
#include "reference/reference_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "loci/model/gguf.h"
#include "loci/model/model.h"
#include "reference/golden_file.h"

namespace loci {
namespace {

class ReferenceModelTest : public testing::TestWithParam<std::string> {};

// Both sides are float64: what may differ is the order of sums (n * 1.1e-16 of the largest term, some
// hundred terms, a few layers, times the slope of attention) and the golden file's 13 digits.
constexpr double kTolerance = 1e-10;

TEST_P(ReferenceModelTest, AgreesWithTransformersInFloat64) {
  Result<GoldenTinyModel> golden = read_golden_tiny(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.status().to_string();
  Result<GgufFile> file = GgufFile::open(golden->model_path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  Result<ModelSpec> spec = read_model_spec(*file);
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();

  std::size_t rows = 0;
  for (const GoldenSequence& sequence : golden->sequences) {
    const std::vector<double> logits = reference_logits(*spec, sequence.tokens);
    for (const GoldenRow& row : sequence.rows) {
      ASSERT_EQ(row.logits.size(), spec->vocabulary);
      double worst = 0;
      for (std::size_t i = 0; i < row.logits.size(); ++i) {
        worst = std::max(worst, std::abs(row.logits[i] - logits[row.position * spec->vocabulary + i]));
      }
      EXPECT_LT(worst, kTolerance) << sequence.tokens.size() << " tokens, position " << row.position;
      ++rows;
    }
  }
  EXPECT_GE(rows, 15u);
}

// Rounding the state is a small, visible change: neither nothing nor another model.
TEST_P(ReferenceModelTest, RoundsTheStateWhereAsked) {
  Result<GoldenTinyModel> golden = read_golden_tiny(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.status().to_string();
  Result<GgufFile> file = GgufFile::open(golden->model_path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  Result<ModelSpec> spec = read_model_spec(*file);
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();

  const std::vector<TokenId>& tokens = golden->sequences.at(2).tokens;
  const std::vector<double> exact = reference_logits(*spec, tokens);
  const std::vector<double> rounded = reference_logits(*spec, tokens, ReferenceState::kF16);
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    difference += (exact[i] - rounded[i]) * (exact[i] - rounded[i]);
    size += exact[i] * exact[i];
  }
  EXPECT_GT(std::sqrt(difference / size), 1e-6);
  EXPECT_LT(std::sqrt(difference / size), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(TinyModels, ReferenceModelTest, testing::ValuesIn(golden_tiny_names()),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace loci
