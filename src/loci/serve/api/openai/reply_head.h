// SPDX-License-Identifier: Apache-2.0
// What the replies of OpenAI's two completions share: the head, the usage, the events of a stream.
#pragma once

#include <string>
#include <vector>

#include "loci/serve/generation/reply_format.h"
#include "loci/serve/wire/json.h"

namespace loci {

// What all chunks of one reply of OpenAI's completions have in common.
struct ReplyHead {
  std::string id;            // "chatcmpl-..." or "cmpl-..."
  std::int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;        // system_fingerprint
  bool logprobs = false;          // choices carry them
  bool include_usage = false;     // chunks carry "usage": null, the last one the numbers
  bool continuous_usage = false;  // chunks carry the numbers so far
};

// What a stream has come to, for its chunks (stream_options.continuous_usage_stats). Thread-compatible.
class UsageSoFar {
 public:
  void begin(const ReplyUsage& prompt) { prompt_tokens_ = prompt.prompt_tokens; }
  // Of a choice, from its beginning.
  void set_tokens(std::uint32_t choice, std::uint64_t tokens);
  // {"prompt_tokens", "completion_tokens", "total_tokens"}: what the final usage has for certain.
  Json json() const;

 private:
  std::uint64_t prompt_tokens_ = 0;
  std::uint64_t completion_tokens_ = 0;       // of all choices
  std::vector<std::uint64_t> choice_tokens_;  // by index
};

Json head_json(const ReplyHead& head, std::string_view object);
Json usage_json(const ReplyUsage& usage);
// The event before a stream's [DONE]: the usage, where the head includes it, and the explanation, where it is
// wanted; nothing where there is neither.
std::string usage_event(const ReplyHead& head, std::string_view object, const ReplyUsage& usage);
// One event of a stream: the head, one choice or none, and the usage so far where the head asks for it.
std::string chunk_event(const ReplyHead& head, std::string_view object, Json choices,
                        const UsageSoFar& usage);

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}, ...], "refusal": null}
Json chat_logprobs_json(const std::vector<LogprobEntry>& entries);

}  // namespace loci
