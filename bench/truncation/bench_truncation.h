// SPDX-License-Identifier: Apache-2.0
// What truncation costs in quality: the perplexity of texts that are longer than the context, for each way to
// treat the kept tokens' state when the context is full and its oldest part is dropped (AttentionStore
// §4.3.7).
//
//   recomputed  the kept tokens' state is computed from scratch (the paper's TT)
//   rotated     the state stays, its keys rotated to their new positions (Loci; the paper's AS)
//   naive       the state stays with the keys of the old positions, which are then wrong (the paper's NKVT)
//
// each with and without the context's first block kept (attention sinks). All six run over the backend beside
// each other, a span each in every pass; what is scored is every token after the first time that the context
// was full.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/compute/make_backend.h"
#include "loci/model/open_source.h"

namespace loci {

enum class KeptState : std::uint8_t { kRecomputed, kRotated, kNaive };
inline constexpr std::size_t kTruncationSchemes = 6;

struct TruncationScheme {
  KeptState state = KeptState::kRecomputed;
  bool first_block = true;  // stays
};
std::string truncation_scheme_name(const TruncationScheme& scheme);

struct BenchTruncationOptions {
  std::string model;  // as open_model_source()
  LoadOptions load;
  std::vector<std::string> texts;  // files of UTF-8 text
  BackendOptions backend;
  std::uint32_t window = 2048;      // tokens of context; whole blocks
  double ratio = 0.5;               // of the context that is dropped when it is full, rounded to whole blocks
  std::uint32_t truncations = 8;    // of each text
  std::uint32_t chunk_tokens = 64;  // of each scheme in a pass
  bool json = false;
  std::function<void(const std::string&)> progress;  // a line for each truncation; may be empty
};

struct SchemeResult {
  TruncationScheme scheme;
  double perplexity = 0;
  // Of the logarithm's difference to the recomputed state with the same tokens kept, over the truncations of
  // the text: how far the ratio of both perplexities can be trusted.
  double log_ratio = 0;
  double log_ratio_error = 0;
};

struct TextResult {
  std::string text;
  std::uint64_t tokens = 0;      // scored, of each scheme
  double window_perplexity = 0;  // of the tokens before the first truncation
  std::vector<SchemeResult> schemes;
};

// Errors: what cannot be opened; kInvalidArgument naming the option; a text that is too short for so many
// truncations.
Result<std::vector<TextResult>> bench_truncation(const BenchTruncationOptions& options);
// A table for people, or a JSON line for each text.
std::string format_bench_truncation(const BenchTruncationOptions& options,
                                    const std::vector<TextResult>& results);

// The program: arguments as main()'s. Prints to standard output, progress to standard error; returns the exit
// code.
int run_bench_truncation(int count, const char* const* arguments);

}  // namespace loci
