// SPDX-License-Identifier: Apache-2.0
// Reading the golden files of tests/golden/ (its scripts say how they were made).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"

namespace loci {

// tests/golden/NAME in the source tree (LOCI_SOURCE_DIR, which ctest sets; else the working folder).
std::string golden_path(const std::string& name);

// tiny/NAME.json: logits of a tiny model by transformers, in float64.
struct GoldenRow {
  std::uint32_t position = 0;
  std::vector<double> logits;  // [vocabulary], 13 significant digits
};
struct GoldenSequence {
  std::vector<TokenId> tokens;
  std::vector<GoldenRow> rows;
};
struct GoldenTinyModel {
  std::string model_path;  // the GGUF file
  std::vector<GoldenSequence> sequences;
};
const std::vector<std::string>& golden_tiny_names();
Result<GoldenTinyModel> read_golden_tiny(const std::string& name);

// families/NAME/: a tiny model of each family in both formats, and its logits by transformers in float64.
struct GoldenFamily {
  std::string directory;                  // config.json and model.safetensors
  std::string gguf_path;                  // the same model by llama.cpp's converter
  std::vector<GoldenSequence> sequences;  // 10 significant digits
};
const std::vector<std::string>& golden_family_names();
Result<GoldenFamily> read_golden_family(const std::string& name);

// llama_cpp/chat.jsonl: greedy answers of llama.cpp on the default model (gemma3.jsonl: on Gemma 3 270M). In
// each step ids and logprobs [20] are the most likely tokens, descending, after the prompt and the steps
// before; ids[0] is the token that was taken.
struct GoldenStep {
  std::vector<TokenId> ids;
  std::vector<double> logprobs;
};
struct GoldenChat {
  std::string text;             // the user's message
  std::vector<TokenId> prompt;  // that message in the model's chat template
  std::vector<GoldenStep> steps;
};
struct GoldenChats {
  std::string model_sha256;
  std::vector<GoldenChat> chats;
};
Result<GoldenChats> read_golden_chats(const std::string& name = "llama_cpp/chat.jsonl");

// llama_cpp/perplexity.jsonl: per window, each from an empty context, the sum over i >= 1 of
// -log p(tokens[i] | tokens[0..i-1]).
struct GoldenWindow {
  std::vector<TokenId> tokens;
  double negative_log_likelihood = 0;
};
struct GoldenPerplexity {
  std::string model_sha256;
  std::vector<GoldenWindow> windows;
};
Result<GoldenPerplexity> read_golden_perplexity();

}  // namespace loci
