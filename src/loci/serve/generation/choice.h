// One choice of a reply: turns its sampled tokens into the text and log-probabilities that a client may
// see. Stop strings are matched on the text across the borders of tokens; nothing of one is ever shown.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/sampler.h"
#include "loci/model/tokenizer.h"
#include "loci/serve/generation/stop_matcher.h"
#include "loci/serve/reply/output.h"

namespace loci {

struct Delta {
  std::string text;
  std::vector<LogprobEntry> logprobs;

  bool empty() const { return text.empty() && logprobs.empty(); }
};

struct ChoiceOptions {
  std::vector<std::string> stop;     // stop strings
  std::vector<TokenId> stop_tokens;  // end the reply; they have no text
  std::uint32_t min_tokens = 0;      // stop strings that end before are not looked for
  bool logprobs = false;
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
  Delta take();

  bool stopped() const { return matcher_.matched(); }  // a stop string was found
  const std::string& stop_string() const { return matcher_.match(); }
  std::uint32_t tokens() const { return tokens_; }  // pushed, the matching one included

 private:
  struct Pending {
    LogprobEntry entry;
    std::uint64_t begin = 0;  // bytes of the whole text before the token's, and with them
    std::uint64_t end = 0;
  };

  void feed(std::string_view text);
  void release_logprobs();
  LogprobEntry describe(const Sampled& sampled) const;

  const Tokenizer* tokenizer_;
  ChoiceOptions options_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  std::uint32_t tokens_ = 0;
  std::uint64_t decoded_bytes_ = 0;
  std::uint64_t decoded_characters_ = 0;
  std::uint64_t unmatched_bytes_ = 0;  // shown without having been matched (min_tokens)
  bool finished_ = false;
  std::deque<Pending> pending_;
  Delta visible_;
};

}  // namespace loci
