// SPDX-License-Identifier: Apache-2.0
// POST /v1/responses: the request's JSON as plain values. No networking here.
#pragma once

#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/serve/request/json.h"
#include "loci/serve/responses/items.h"

namespace loci {

// Limits, as OpenAI's.
inline constexpr std::size_t kMetadataPairsMax = 16;
inline constexpr std::size_t kMetadataKeyCharactersMax = 64;
inline constexpr std::size_t kMetadataValueCharactersMax = 512;

struct ResponseRequest {
  std::string model;                 // empty: whatever is served
  std::vector<Item> input;           // at least one item; see items.h
  std::string instructions;          // of this response alone
  std::string previous_response_id;  // empty: none; never together with a conversation
  std::string conversation;          // empty: none
  bool store = true;
  bool background = false;
  bool stream = false;
  std::string truncation;  // of a conversation that outgrows the context: "auto", "disabled"; empty: not said
  bool logprobs = false;   // the output's text carries them
  // The request's parameters as the response object shows them.
  Json echo;
  // What decides the reply (sampling, limits, tools, format), under the names of a chat completion, whose
  // parser checks it: everything but messages.
  Json chat;
};

// `can_store`: the server has a store; without one `store` is false unless it is asked for.
// Errors: kInvalidArgument naming field, value and limit; kUnimplemented for what is not served.
Result<ResponseRequest> parse_response_request(const Json& request, bool can_store);

// An object of strings, at most kMetadataPairsMax. Absent and null: an empty one.
Result<Json> read_metadata(const Json& request);

// The field of a response's request that an error of the chat parser is about.
std::string response_field(const std::string& chat_field);

}  // namespace loci
