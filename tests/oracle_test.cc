// SPDX-License-Identifier: Apache-2.0
// Loci against llama.cpp on the default model: greedy answers with log-probabilities, and perplexity. The
// golden files say how they were made (tests/golden/make_llama_cpp_golden.py).
//
// Both programs round activations to int8, each in its own way, and this model amplifies it. llama.cpp
// against *itself*, a prompt computed at once or token by token: its 20 log-probabilities differ by 0.14
// (root mean square), and in 80 of 3,200 steps it takes another token, where its first two were up to 0.34
// apart. With its fused attention up to 0.46; against the float64 model 0.15, 17 of 832 and up to 0.40.
// The tolerances are those figures with a margin; that of the top two is 3 standard deviations of the
// difference of two log-probabilities that are each off by 0.165: 3 * sqrt(2) * 0.165.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <memory>

#include "loci/compute/cpu/cpu_backend.h"
#include "loci/model/default_model.h"
#include "loci/model/gguf.h"
#include "loci/model/model.h"
#include "reference/golden_file.h"
#include "reference/greedy_agreement.h"
#include "reference/sequence_runner.h"

namespace loci {
namespace {

constexpr double kTopTwoTolerance = 0.7;       // apart by more: the same token, always
constexpr double kLogprobDifference = 0.2;     // root mean square over the golden tokens of all steps
constexpr double kOtherTokenShare = 0.04;      // of all steps, however close the two were
constexpr double kPerplexityTolerance = 0.01;  // relative
constexpr std::uint32_t kMaxTokens = 1024;

// One model for all tests: loading and packing it takes longer than some of them.
class OracleTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    Result<GgufFile> file = GgufFile::open(default_model_path());
    status_ = file.status();
    if (!file.ok()) return;
    file_ = std::make_unique<GgufFile>(std::move(file).value());
    Result<ModelSpec> spec = read_model_spec(*file_);
    status_ = spec.status();
    if (!spec.ok()) return;
    vocabulary_ = spec->vocabulary;
    Result<std::unique_ptr<Backend>> backend = make_cpu_backend(*spec, {});
    status_ = backend.status();
    if (!backend.ok()) return;
    backend_ = std::move(backend).value();
    runner_ = std::make_unique<SequenceRunner>(*backend_, kMaxTokens);
  }
  static void TearDownTestSuite() {
    runner_.reset();
    backend_.reset();
    file_.reset();
  }
  void SetUp() override {
    ASSERT_TRUE(status_.ok()) << status_.to_string() << " ('make model' fetches the model)";
  }

  static Status status_;
  static std::unique_ptr<GgufFile> file_;
  static std::unique_ptr<Backend> backend_;
  static std::unique_ptr<SequenceRunner> runner_;
  static std::uint32_t vocabulary_;
};
Status OracleTest::status_;
std::unique_ptr<GgufFile> OracleTest::file_;
std::unique_ptr<Backend> OracleTest::backend_;
std::unique_ptr<SequenceRunner> OracleTest::runner_;
std::uint32_t OracleTest::vocabulary_ = 0;

TEST_F(OracleTest, GreedyAnswersAreLlamaCpps) {
  Result<GoldenChats> golden = read_golden_chats();
  ASSERT_TRUE(golden.ok()) << golden.status().to_string();
  const GreedyAgreement found = compare_greedy(*runner_, vocabulary_, golden->chats, kTopTwoTolerance);
  EXPECT_EQ(found.wrong, std::vector<std::string>{});
  EXPECT_EQ(found.steps, 3200u);
  EXPECT_GT(found.clear, 2200u);
  EXPECT_LT(found.logprob_difference, kLogprobDifference);
  EXPECT_LT(static_cast<double>(found.other_token), kOtherTokenShare * static_cast<double>(found.steps));
}

TEST_F(OracleTest, PerplexityIsLlamaCpps) {
  Result<GoldenPerplexity> golden = read_golden_perplexity();
  ASSERT_TRUE(golden.ok()) << golden.status().to_string();
  double found = 0, expected = 0, predictions = 0;
  for (const GoldenWindow& window : golden->windows) {
    const std::span<const float> logits = runner_->run(window.tokens, 0);
    for (std::size_t i = 1; i < window.tokens.size(); ++i, ++predictions) {
      const std::span<const float> row = logits.subspan((i - 1) * vocabulary_, vocabulary_);
      found += log_normaliser(row) - row[window.tokens[i].value];
    }
    expected += window.negative_log_likelihood;
  }
  ASSERT_EQ(predictions, 16 * 511);
  const double perplexity = std::exp(found / predictions);
  const double llama_cpp = std::exp(expected / predictions);
  std::cout << "perplexity " << perplexity << ", llama.cpp's " << llama_cpp << "\n";
  EXPECT_LT(std::abs(perplexity / llama_cpp - 1), kPerplexityTolerance);
}

}  // namespace
}  // namespace loci
