// SPDX-License-Identifier: Apache-2.0
// How one API writes a reply: chat completions, text completions, responses, Anthropic's messages. One
// object for one reply.
//
// A stream is: begin(), then for each choice begin_choice(), delta() ..., finish_choice(), then end(); or
// stream_error() in place of what has not been written. Each returns whole server-sent events, or nothing.
// A choice of many log-probabilities is finished at the stream's end, whenever it came to its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/ids.h"
#include "loci/serve/conversation/output.h"
#include "loci/serve/generation/explanation.h"
#include "loci/serve/wire/api_error.h"

namespace loci {

struct ReplyUsage {
  std::uint64_t prompt_tokens = 0;   // without what was dropped
  std::uint64_t dropped_tokens = 0;  // of the history, which outgrew the context
  std::uint64_t cached_tokens = 0;
  std::uint64_t completion_tokens = 0;
  std::uint64_t reasoning_tokens = 0;  // of the completion's
  ReplyExplanation explanation;        // where it is wanted, the reply's end carries it
};

enum class ReplyFinish : std::uint8_t {
  kStop,        // the model ended its turn
  kStopString,  // one of the client's strings was found
  kLength,      // the limit of tokens, or the context is full
  kToolCalls,   // the model waits for the results of its calls
};

// As the access log and OpenAI's completions say it: "stop", "length", "tool_calls".
constexpr std::string_view finish_reason_name(ReplyFinish finish) {
  if (finish == ReplyFinish::kToolCalls) return "tool_calls";
  return finish == ReplyFinish::kLength ? "length" : "stop";
}

struct FinishedChoice {
  std::uint32_t index = 0;
  // Of the prompt's tokens, where they were scored; the first one's is not known.
  std::vector<LogprobEntry> echoed;
  ModelOutput output;
  ReplyFinish finish = ReplyFinish::kStop;
  std::string stop_string;      // kStopString: which
  std::vector<TokenId> tokens;  // as sampled, the one that ended the reply included
};

// Thread-compatible. The network thread calls it; a worker may call finish_choice(), end() and whole().
class ReplyFormat {
 public:
  virtual ~ReplyFormat() = default;

  virtual std::string begin(const ReplyUsage& prompt) = 0;  // prompt_tokens and cached_tokens are known
  virtual std::string begin_choice(std::uint32_t index) = 0;
  virtual std::string delta(std::uint32_t index, const OutputDelta& delta) = 0;
  virtual std::string finish_choice(const FinishedChoice& choice) = 0;
  virtual std::string end(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) = 0;
  virtual std::string stream_error(const ApiError& error) = 0;

  // The reply's body where it is not streamed.
  virtual std::string whole(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) = 0;
};

}  // namespace loci
