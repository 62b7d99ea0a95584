// SPDX-License-Identifier: Apache-2.0
// Loci against llama.cpp on Gemma 3 270M (Q4_K_M): a real file with K-quants, a SentencePiece vocabulary, two
// rotations and windows of 512 tokens, of which one text fills more. tests/golden/fetch_gemma3.sh fetches the
// model, tests/golden/make_gemma3_golden.py says how the golden file was made.
//
// As in oracle_test.cc both programs round activations to integers, each in its own way; their log-
// probabilities differ by noise, and where llama.cpp's first two tokens are close either may be taken.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "loci/compute/cpu/cpu_backend.h"
#include "loci/model/gguf.h"
#include "loci/model/model.h"
#include "reference/golden_file.h"
#include "reference/greedy_agreement.h"
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

  const GreedyAgreement found = compare_greedy(runner, spec->vocabulary, golden->chats, kTopTwoTolerance);
  EXPECT_EQ(found.wrong, std::vector<std::string>{});
  EXPECT_EQ(found.steps, 320u);
  EXPECT_GT(found.clear, 160u);
  EXPECT_LT(found.logprob_difference, kLogprobDifference);
}

}  // namespace
}  // namespace loci
