// SPDX-License-Identifier: Apache-2.0
// From logits to a token. Deterministic: the token depends only on the logits, the parameters, the tokens so
// far and the seed, never on the batch or on a suspension.
//
// The order of steps is the one that clients of llama.cpp and vLLM expect: bias, minimum tokens, what the
// grammar allows, penalties, then (temperature 0: the greatest logit, the lowest id among equals)
// temperature, top-k, top-p, min-p, draw.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/run/constraint.h"

namespace loci {

// A bias of this size makes a token practically impossible, or certain.
inline constexpr float kBiasMax = 100.0f;

struct SamplingParams {
  float temperature = 1.0f;                           // >= 0; 0: greedy
  std::uint32_t top_k = 0;                            // 0: all
  float top_p = 1.0f;                                 // (0, 1]
  float min_p = 0.0f;                                 // [0, 1]
  float repetition_penalty = 1.0f;                    // > 0; over prompt and output, as in vLLM
  float frequency_penalty = 0.0f;                     // [-2, 2]; over the output
  float presence_penalty = 0.0f;                      // [-2, 2]; over the output
  std::vector<std::pair<TokenId, float>> logit_bias;  // [-kBiasMax, kBiasMax]
  std::uint64_t seed = 0;
  std::uint32_t min_tokens = 0;  // stop tokens are not sampled before this many tokens
  // Tokens with which the output begins in any case, in order to learn how likely they are. They do not count
  // as output.
  std::vector<TokenId> forced;
  std::uint32_t top_logprobs = 0;  // alternatives to report for each token, at most 20
  bool logprobs = false;
};

// Errors: kInvalidArgument naming the API's field, its value and its limit.
Status validate_sampling(const SamplingParams& params, std::uint32_t vocabulary);

// What is reported of a token that the model makes impossible, and of every token of a row that is no
// distribution (its greatest logit is not finite). It is the value that clients of OpenAI and vLLM know.
inline constexpr float kLogprobMin = -9999.0f;

struct TokenLogprob {
  TokenId token;
  float logprob = 0;  // natural, of the model's own distribution (before any parameter); at least kLogprobMin
};

struct Sampled {
  TokenId token;
  TokenLogprob chosen;            // only if logprobs were asked for
  std::vector<TokenLogprob> top;  // best first
};

// One request's sampling state. Thread-compatible, except prepare().
class Sampler {
 public:
  // `stop_tokens` are held back until params.min_tokens have been sampled. With a grammar they are also
  // allowed wherever it lets the reply end.
  Sampler(SamplingParams params, std::span<const TokenId> prompt, std::vector<TokenId> stop_tokens,
          std::uint32_t vocabulary, std::shared_ptr<const Grammar> grammar = nullptr);

  // `logits`: [vocabulary]. Counts the token it returns as output. Absent: the grammar allows no token, and
  // grammar_end() says whether the reply is whole.
  std::optional<Sampled> sample(std::span<const float> logits);
  // Continues as if `draw` tokens had been drawn. Only for parameters that do not depend on earlier tokens.
  void resume_at(std::uint64_t draw) { draws_ = draw; }
  // Continues as if it had sampled these tokens. Once, before anything else; without `forced` ones.
  void resume_after(std::span<const TokenId> said);

  // Computes which tokens the grammar allows next, ahead of sample(). Any thread may call it.
  void prepare();
  bool constrained() const { return constraint_ != nullptr; }
  // SamplingParams::forced.
  std::uint32_t forced_tokens() const { return static_cast<std::uint32_t>(params_.forced.size()); }
  // True: the logits, the parameters and the number of the draw alone decide on its tokens, and nobody asks
  // for log probabilities. Then a backend that samples may do it, and does it for the whole request.
  bool on_device() const { return on_device_; }
  // `draw`: how many tokens were drawn before.
  DeviceSampling device_sampling(std::uint64_t draw) const;
  // After the last sample().
  GrammarEnd grammar_end() const { return grammar_end_; }
  // If grammar_end() says that the grammar has failed: kInvalidArgument with the reason.
  Status grammar_status() const;

 private:
  bool adjusts() const;
  // True: stop tokens may not be sampled yet.
  bool holds_stops_back() const { return draws_ < params_.forced.size() + params_.min_tokens; }
  void adjust(std::span<float> logits) const;
  bool find_allowed();
  TokenId first_allowed() const;
  bool accept(TokenId token);
  TokenId draw(std::span<const float> logits);
  TokenId draw_from_all(double uniform, std::uint32_t best) const;
  TokenId draw_from_some(double uniform, std::uint32_t best);
  void count_output(TokenId token);
  void sort_candidates(std::size_t& sorted, std::size_t wanted);
  void report(std::span<const float> logits, Sampled& sampled);

  SamplingParams params_;
  std::vector<TokenId> stop_tokens_;
  std::vector<std::pair<TokenId, std::uint32_t>> output_counts_;  // sorted by token
  std::vector<TokenId> prompt_tokens_;                            // sorted, distinct
  std::uint32_t vocabulary_;
  std::vector<float> scratch_;        // [vocabulary], from the first sample on: what adjust() changes
  std::vector<float> weights_;        // [vocabulary]: unnormalised probabilities, the greatest is 1
  std::vector<std::uint32_t> order_;  // ids of the candidates
  std::uint64_t draws_ = 0;
  bool on_device_ = false;

  std::unique_ptr<Constraint> constraint_;  // null: no grammar
  std::vector<std::uint32_t> allowed_;      // a bit for each token of the vocabulary
  GrammarEnd grammar_end_ = GrammarEnd::kGoesOn;
};

}  // namespace loci
