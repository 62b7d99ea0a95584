// Loci against llama.cpp on Gemma 3 270M (Q4_K_M): a real file with K-quants, a SentencePiece vocabulary, two
// rotations and windows of 512 tokens, of which one text fills more. tests/golden/fetch_gemma3.sh fetches the
// model, tests/golden/make_gemma3_golden.py says how the golden file was made.
//
// As in oracle_test.cc both programs round activations to integers, each in its own way; their log-
// probabilities differ by noise, and where llama.cpp's first two tokens are close either may be taken.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "loci/compute/cpu/cpu_backend.h"
#include "loci/model/gguf.h"
#include "loci/model/model.h"
#include "reference/golden_file.h"
#include "reference/sequence_runner.h"

namespace loci {
namespace {

constexpr double kTopTwoTolerance = 0.7;    // apart by more: the same token, always
constexpr double kLogprobDifference = 0.2;  // root mean square over the golden tokens of all steps
constexpr std::uint32_t kMaxTokens = 1024;

// LOCI_GEMMA3, or where fetch_gemma3.sh's usage puts it.
std::string model_path() {
  if (const char* path = std::getenv("LOCI_GEMMA3")) return path;
  const char* source = std::getenv("LOCI_SOURCE_DIR");
  return std::string(source == nullptr ? "." : source) + "/build/models/gemma-3-270m-q4_k_m.gguf";
}

double log_normaliser(std::span<const float> row) {
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (float logit : row) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

TEST(Gemma3Oracle, GreedyContinuationsAreLlamaCpps) {
  const Result<GgufFile> file = GgufFile::open(model_path());
  if (file.status().code() == StatusCode::kNotFound) {
    GTEST_SKIP() << model_path() << " is not there: tests/golden/fetch_gemma3.sh FILE fetches it (243 MB)";
  }
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const Result<ModelSpec> spec = read_model_spec(*file);
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  EXPECT_EQ(spec->layers[4].window, 512u);
  EXPECT_EQ(spec->layers[5].window, 0u);
  Result<std::unique_ptr<Backend>> backend = make_cpu_backend(*spec, {});
  ASSERT_TRUE(backend.ok()) << backend.status().to_string();
  SequenceRunner runner(**backend, kMaxTokens);
  const Result<GoldenChats> golden = read_golden_chats("llama_cpp/gemma3.jsonl");
  ASSERT_TRUE(golden.ok()) << golden.status().to_string();

  std::size_t steps = 0, clear = 0, other_token = 0, compared = 0;
  double squares = 0, widest_other = 0;
  for (const GoldenChat& text : golden->chats) {
    std::vector<TokenId> tokens = text.prompt;  // and the continuation, as llama.cpp gave it
    for (std::size_t i = 0; i + 1 < text.steps.size(); ++i) tokens.push_back(text.steps[i].ids[0]);
    const std::span<const float> logits =
        runner.run(tokens, static_cast<std::uint32_t>(text.prompt.size()) - 1);
    ASSERT_EQ(logits.size(), text.steps.size() * spec->vocabulary);
    for (std::size_t i = 0; i < text.steps.size(); ++i, ++steps) {
      const GoldenStep& step = text.steps[i];
      const std::span<const float> row = logits.subspan(i * spec->vocabulary, spec->vocabulary);
      const auto found = static_cast<std::uint32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      const double apart = step.logprobs[0] - step.logprobs[1];
      clear += apart > kTopTwoTolerance ? 1 : 0;
      if (found != step.ids[0].value) {
        ++other_token;
        widest_other = std::max(widest_other, apart);
        EXPECT_LE(apart, kTopTwoTolerance)
            << text.text << ", step " << i << ": token " << found << " instead of " << step.ids[0].value;
      }
      const double normaliser = log_normaliser(row);
      for (std::size_t k = 0; k < step.ids.size(); ++k, ++compared) {
        const double difference = row[step.ids[k].value] - normaliser - step.logprobs[k];
        squares += difference * difference;
      }
    }
  }
  const double difference = std::sqrt(squares / static_cast<double>(compared));
  std::cout << steps << " steps, " << clear << " of them clear; another token in " << other_token
            << ", where the first two were at most " << widest_other << " apart; log-probabilities differ by "
            << difference << " (root mean square)\n";
  EXPECT_EQ(steps, 320u);
  EXPECT_GT(clear, 160u);
  EXPECT_LT(difference, kLogprobDifference);
}

}  // namespace
}  // namespace loci
