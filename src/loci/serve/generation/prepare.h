// SPDX-License-Identifier: Apache-2.0
// From a request to tokens: the part of a generation that is done on a worker. No networking.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loci/engine/run/block_listener.h"
#include "loci/model/grammar.h"
#include "loci/serve/conversation/conversation.h"
#include "loci/serve/conversation/output_parser.h"
#include "loci/serve/generation/counted.h"
#include "loci/serve/generation/early_reads.h"
#include "loci/serve/generation/generation_fields.h"
#include "loci/serve/generation/prefill.h"
#include "loci/serve/generation/reply_format.h"
#include "loci/serve/generation/resumed_reply.h"
#include "loci/serve/generation/served_model.h"
#include "loci/serve/history/token_history.h"
#include "loci/serve/tenants/tenant_limiter.h"
#include "loci/serve/wire/api_error.h"

namespace loci {

// A conversation as a client of one of the APIs sent it, and what the reply is to be.
struct ChatRequest {
  GenerationFields fields;
  Conversation conversation;
  std::vector<std::string> unknown_fields;            // for the log
  ReasoningPlace reasoning = ReasoningPlace::kApart;  // where the reply has it
};

// What another member did for a request's prompts.
struct ComputedElsewhere {
  struct Prompt {
    std::uint32_t computed = 0;               // tokens, which are read as state of a peer
    std::shared_ptr<const EarlyReads> early;  // what was read meanwhile; null: it was not asked for this one
  };
  std::vector<Prompt> prompts;         // all of the request
  PrefillEnd end = PrefillEnd::kNone;  // of the last one that it was asked for
  Nanos waited = 0;                    // for all of them
  bool is_streaming = false;           // the reply's stream has begun, with comments
  // Of GenerationServices::handed, until the engine has the request: one that drains takes nothing.
  std::unique_ptr<Counted> handed;
};

struct PreparedGeneration {
  GenerationFields fields;
  // Whole histories; what is left of each after its cuts fits the context with at least one new token.
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::vector<TokenRange>> dropped;  // of each prompt: its cuts (policy/truncation.h)
  std::optional<ContextOverflow> overflow;       // the request's own wish
  std::uint32_t front_tokens = 0;                // of prompts that are cut: the system prompt, which stays
  std::vector<TokenId> stop_tokens;              // what ends a reply
  std::shared_ptr<const Grammar> grammar;        // what each reply must be; null: anything
  std::vector<std::string> unknown_fields;       // of the request, for the log
  // How the reply is read (ServedModel::chat says in which syntax). Absent: all of it is text.
  std::optional<OutputParserOptions> parser;
  // The log-probabilities of the prompt's tokens are computed too: one token after another, as a reply's.
  bool scores_prompt = false;
  bool one_call = false;                       // the reply ends with its first call
  std::shared_ptr<const PromptNames> text;     // of the only prompt; null: it has no names
  std::optional<ResumedReply> resumed;         // absent: no other server can go on with the reply
  std::optional<PrefillPlace> prefill;         // where the prompts are computed before; absent: here
  std::optional<ComputedElsewhere> elsewhere;  // what came of that; absent: nobody was asked
  std::optional<TenantTicket> ticket;          // of the tenant; set before run_generation()
  std::unique_ptr<ReplyFormat> format;         // set by the endpoint, at the latest
  // Makes the reply durable: called on a thread of the store's when all choices have ended, before the last
  // event is sent. An error takes the place of the reply's end. Null: nothing is stored.
  std::function<Status(const std::vector<FinishedChoice>&, const ReplyUsage&)> commit;
};

// Tokens of a prompt whose state is computed: all but what is dropped.
inline std::size_t kept_tokens(const PreparedGeneration& prepared, std::size_t prompt) {
  return prepared.prompts[prompt].size() - tokens_of(prepared.dropped[prompt]);
}
// Of all prompts.
std::size_t kept_tokens(const PreparedGeneration& prepared);

using Prepared = std::variant<PreparedGeneration, ApiError>;

// All of these: thread-safe.

// Checks the fields whose limits the model sets, fills in the tokens that end a reply, and compiles the
// reply's constraint (unless `grammar` is set already, by tools that may be called). `field` names the
// prompt in errors.
Prepared check_generation(PreparedGeneration prepared, const ServedModel& served, std::string_view tenant,
                          std::string_view field);
// How an error names one of a request's prompts: "prompt", or "prompt[1]" where there are several.
std::string prompt_field(std::string_view name, std::size_t prompt, std::size_t prompts);
// The error of a prompt whose `texts` are so long that no token after their beginning needs to be counted
// (long_prompt.h). Absent: count them; they may fit, or the server cuts what does not.
std::optional<ApiError> refuse_long_prompt(std::span<const std::string_view> texts, ControlText control,
                                           std::optional<ContextOverflow> overflow, const ServedModel& served,
                                           std::string_view field);
// 404 where `name` is not the served model; "" and "default" are.
std::optional<ApiError> check_model(const std::string& name, const ServedModel& served);

// A conversation, rendered and tokenised. `field` holds its messages: what an error of theirs names.
// `overflow`: the request's wish for a conversation that outgrows the context.
Prepared prepare_chat(ChatRequest request, std::string_view field, const ServedModel& served,
                      TokenHistory& history, std::string_view tenant,
                      std::optional<ContextOverflow> overflow = {});

// A conversation's tokens, and what its template was rendered with.
struct EncodedConversation {
  std::vector<TokenId> tokens;
  std::string context;
  std::optional<std::string> continued;  // the text of the last message, with which the reply goes on
};
Result<EncodedConversation> encode_conversation(Conversation conversation, std::string_view field,
                                                const ServedModel& served, TokenHistory& history,
                                                std::string_view tenant);

}  // namespace loci
