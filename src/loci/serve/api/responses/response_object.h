// SPDX-License-Identifier: Apache-2.0
// The response object: what POST answers, GET returns and most events of a stream carry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loci/serve/api/responses/items.h"
#include "loci/serve/generation/reply_format.h"
#include "loci/serve/wire/json.h"

namespace loci {

// What is known of a response before the model speaks.
struct ResponseHead {
  std::string id;               // "resp_..."
  std::int64_t created_at = 0;  // seconds since 1970
  std::string model;
  std::string conversation;  // empty: of none
  Json echo;                 // the request's parameters (response_request.h)
  bool logprobs = false;     // the output's text carries them
};

// How it ended.
struct ResponseEnd {
  std::string status;             // "completed", "incomplete", "failed", "cancelled"
  std::int64_t completed_at = 0;  // 0: null
  std::vector<Item> output;
  std::optional<ReplyUsage> usage;
  std::optional<ApiError> error;
};

// Of a response that has not ended: `status` is "queued" or "in_progress".
Json response_json(const ResponseHead& head, const std::string& status);
Json response_json(const ResponseHead& head, const ResponseEnd& end);

// --- items of the output; `status` as in the API ---

Item message_item(const std::string& id, const std::string& status, const std::string& text,
                  const std::vector<LogprobEntry>& logprobs);
Item reasoning_item(const std::string& id, const std::string& status, const std::string& text);
Item call_item(const std::string& id, const std::string& status, const ToolCall& call);

// Parts of messages: {"type": "output_text", ...}, {"type": "reasoning_text", ...}.
Item output_text_part(const std::string& text, const std::vector<LogprobEntry>& logprobs);
Item reasoning_text_part(const std::string& text);

// What the model said, as items: one for each part; an empty message where it said nothing. Their ids are
// those of output_item_id(). Where the reply was cut off its last item is incomplete.
std::vector<Item> output_items(const ResponseHead& head, const FinishedChoice& choice);

// The items with `logprobs` that are empty.
std::vector<Item> without_logprobs(const std::vector<Item>& items);

// Of a reply's tokens those that spell one text of it. They are known by their place: a text is all of the
// reply, or its beginning, or its end; of one in the middle there are none.
std::vector<LogprobEntry> logprobs_of_text(const std::vector<LogprobEntry>& all, std::string_view text,
                                           bool first, bool last);

// [{"token", "bytes", "logprob", "top_logprobs": [...]}, ...]
Json logprobs_json(const std::vector<LogprobEntry>& entries);

// "server_error", "rate_limit_exceeded" or "invalid_prompt", and the message.
Json response_error_json(const ApiError& error);

}  // namespace loci
