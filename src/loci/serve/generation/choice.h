// SPDX-License-Identifier: Apache-2.0
// One choice of a reply. Turns its sampled tokens into what a client may see: text, reasoning, calls of
// tools, log-probabilities. Stop strings are matched on the text (not on reasoning or calls) across the
// borders of tokens; no part of a stop string is ever shown.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/run/sampler.h"
#include "loci/model/tokenizer.h"
#include "loci/serve/conversation/output.h"
#include "loci/serve/conversation/output_parser.h"
#include "loci/serve/generation/stop_matcher.h"

namespace loci {

struct ChoiceOptions {
  std::vector<std::string> stop;     // stop strings
  std::vector<TokenId> stop_tokens;  // end the reply; they have no text
  std::uint32_t min_tokens = 0;      // stop strings that end before are not looked for
  bool logprobs = false;
  // How reasoning and calls are written; it outlives the choice. Null: all is text.
  const OutputSyntax* syntax = nullptr;
  OutputParserOptions parser;
  bool one_call = false;  // the reply ends with its first call
};

// Thread-compatible; the tokenizer must outlive it.
class Choice {
 public:
  Choice(const Tokenizer& tokenizer, ChoiceOptions options);

  // Ignored once stopped() is true.
  void push(const Sampled& sampled);
  // No token follows: what was held back is shown.
  void finish();
  // What became visible since the last call.
  OutputDelta take();

  bool stopped() const { return matcher_.matched(); }  // a stop string was found
  bool called() const { return parser_ && parser_->calls() > 0; }
  // Nothing that follows would be shown: a stop string was found, or the one call is whole.
  bool ended() const { return stopped() || call_ended_; }
  std::uint32_t reasoning_tokens() const { return reasoning_tokens_; }
  const std::string& stop_string() const { return matcher_.match(); }
  std::uint32_t tokens() const { return tokens_; }  // pushed, the matching one included

 private:
  struct Pending {
    LogprobEntry entry;
    std::uint64_t begin = 0;  // bytes of all that was decoded before the token, and with it
    std::uint64_t end = 0;
  };

  void feed(std::string_view text);
  void show_pieces();
  void show_text(std::string_view text);
  std::uint64_t shown_bytes() const;
  void release_logprobs();
  LogprobEntry describe(const Sampled& sampled) const;

  const Tokenizer* tokenizer_;
  ChoiceOptions options_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  std::uint32_t tokens_ = 0;
  std::uint64_t decoded_bytes_ = 0;
  std::uint64_t decoded_characters_ = 0;
  std::uint64_t matcher_bytes_ = 0;  // of text, given to the matcher in use
  std::uint32_t reasoning_tokens_ = 0;
  bool finished_ = false;
  bool call_ended_ = false;
  std::optional<OutputParser> parser_;
  std::deque<Pending> pending_;
  OutputDelta visible_;
};

}  // namespace loci
