// SPDX-License-Identifier: Apache-2.0
// One turn of the Responses API, from a request's body to a generation that stores its result. Workers parse
// and prepare; the store's threads make the store's calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loci/serve/api/responses/response_request.h"
#include "loci/serve/api/responses/responses_format.h"
#include "loci/serve/generation/prepare.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/store/stored_text.h"

namespace loci {

// What a response continues.
struct ResponseHistory {
  std::vector<Item> items;      // the oldest first
  std::uint64_t bytes_max = 0;  // of `items`; and of the copies of them that a turn's references ask for
  std::vector<TokenId> tokens;  // of the response that it continues; empty where they are not known
  std::string tokenizer;        // that made them
};

// The turn as it is written to the store: once for most, three times for one in the background (queued, in
// progress, ended). Immutable.
struct ResponseTurn {
  std::shared_ptr<ResponseRecord> record;
  std::vector<StoredItem> input;
  std::string previous;
  std::string tokenizer;
  std::int64_t claim = 0;                                // of its conversation: StoredTurn's
  std::size_t response_bytes_max = kStoredJsonBytesMax;  // the store refuses a longer response

  // `status` is "queued" or "in_progress".
  StoredTurn waiting(const std::string& status) const;
  // `tokens` is the whole sequence. Log-probabilities are left out of items, which every later turn reads,
  // and of a response that the store would refuse with them.
  StoredTurn ended(const ResponseEnd& end, std::vector<TokenId> tokens) const;
};

struct PreparedResponse {
  std::shared_ptr<const ResponseTurn> turn;
  PreparedGeneration generation;  // `commit` is set if the response is to be stored; `format` is not set yet
};

// All of these: thread-safe.

std::variant<ResponseRequest, ApiError> parse_response(std::string_view body, bool can_store,
                                                       const RequestDefaults& defaults,
                                                       ResponsePurpose purpose = ResponsePurpose::kReply);

// What the items of a history may take in the store: what a request without one could bring along itself
// (option max_body), and in any case what the model's context has room for.
inline constexpr std::uint64_t kHistoryBytesPerToken = 64;
inline std::uint64_t history_bytes_max(std::uint64_t body_bytes_max, std::uint64_t context_tokens) {
  return std::max(body_bytes_max, kHistoryBytesPerToken * context_tokens);
}

// Reads what the request continues from the store: at most `bytes_max` of it. 404 for what is not there; 400
// for what can't be continued, or takes more. `made`: the response that the request is to make, if another
// server has stored it; then the history is that before it.
std::variant<ResponseHistory, ApiError> load_history(ConversationStore& store, std::string_view tenant,
                                                     const ResponseRequest& request, std::uint64_t bytes_max,
                                                     const std::optional<std::string>& made = {});

// `store` may be null where the request is not stored. `claim` is StoredTurn's. `head`: the new response's
// name and time; the rest of it is the request's.
std::variant<PreparedResponse, ApiError> prepare_response(ResponseRequest request, ResponseHistory history,
                                                          const ServedModel& served, TokenHistory& tokens,
                                                          std::string_view tenant, ConversationStore* store,
                                                          std::int64_t claim, ResponseHead head);

// The answer of /v1/responses/input_tokens: what the response's usage would say, also beyond the context.
std::variant<std::string, ApiError> count_input_tokens(ResponseRequest request,
                                                       const ResponseHistory& history,
                                                       const ServedModel& served, TokenHistory& tokens,
                                                       std::string_view tenant);

// The model's fingerprint in hexadecimal: what StoredResponse::tokenizer holds.
std::string tokenizer_name(const ServedModel& served);

}  // namespace loci
