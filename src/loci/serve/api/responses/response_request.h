// SPDX-License-Identifier: Apache-2.0
// POST /v1/responses and /v1/responses/input_tokens: the request's JSON as plain values. No networking here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/serve/api/responses/items.h"
#include "loci/serve/conversation/tool_use.h"
#include "loci/serve/generation/generation_fields.h"
#include "loci/serve/wire/json.h"

namespace loci {

// Limits, as OpenAI's.
inline constexpr std::size_t kMetadataPairsMax = 16;
inline constexpr std::size_t kMetadataKeyCharactersMax = 64;
inline constexpr std::size_t kMetadataValueCharactersMax = 512;

// Whether the request asks for a reply, or for its length in tokens. Then it may have no input.
enum class ResponsePurpose : std::uint8_t { kReply, kCount };

struct ResponseRequest {
  std::vector<Item> input;           // of a reply at least one item; see items.h
  std::string instructions;          // of this response alone
  std::string previous_response_id;  // empty: none; never together with a conversation
  std::string conversation;          // empty: none
  bool store = true;
  bool background = false;
  std::string truncation;  // of a conversation that outgrows the context: "auto", "disabled"; empty: not said
  bool logprobs = false;   // the output's text carries them
  // The request's parameters as the response object shows them.
  Json echo;
  // What decides the reply, beside its items.
  GenerationFields fields;
  ToolUse tools;
  Json template_arguments = Json::object();  // as a conversation's
  std::string reasoning_effort;              // as a conversation's
};

// `can_store`: the server has a store; without one `store` is false unless it is asked for. `defaults`: for
// the fields that the request leaves out. Errors: kInvalidArgument naming field, value and limit;
// kUnimplemented for what is not served.
Result<ResponseRequest> parse_response_request(const Json& request, bool can_store,
                                               const RequestDefaults& defaults = {},
                                               ResponsePurpose purpose = ResponsePurpose::kReply);

// An object of strings, at most kMetadataPairsMax. Absent and null: an empty one.
Result<Json> read_metadata(const Json& request);

}  // namespace loci
