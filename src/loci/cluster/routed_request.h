// SPDX-License-Identifier: Apache-2.0
// What a front reads of a request to route it. The request itself is passed on as it came, and judged by the
// instance: what can't be read here is routed all the same.
//
// Values; thread-compatible.
#pragma once

#include <array>
#include <boost/beast/http/verb.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/serve/http/http_message.h"

namespace loci {

// Keys the hashes that name prompts: of a cluster (cluster_prompt_key(), cluster_secret.h), and within it of
// a tenant (prompt_key_of()). Whoever lacks it learns nothing from the names.
using PromptKey = std::array<std::uint8_t, 16>;

// Whose errors a client of the path understands; kOpenAi of all but two.
enum class RoutedApi : std::uint8_t { kOpenAi, kMessages, kResponses };

struct RoutedPrompt {
  std::string model;  // empty: it names none
  // Of the prompt's text in whole chunks of kPromptChunkBytes, each of all text up to its end, and of what it
  // goes on from. Their last two bits are 0. None where nothing is generated.
  std::vector<std::uint64_t> keys;
  std::uint64_t bytes = 0;                 // of the text
  std::uint64_t beginning = 0;             // of its system prompt and first message: the same in all turns
  std::optional<std::uint64_t> continues;  // key of the conversation or response that it goes on from
  bool is_conversation = false;            // of the two, a conversation
  bool is_generated = false;               // a model computes the answer, and keeps state of the prompt
  bool may_be_repeated = true;             // sent twice it does what it does once: it stores nothing
  bool is_streamed = false;                // it asks for events
  bool has_seed = false;                   // it says which numbers its reply is drawn with
  RoutedApi api = RoutedApi::kOpenAi;
  bool begins_response = false;  // POST /v1/responses: what it answers may be gone on from

  // Something is computed for it.
  bool is_new_work() const { return bytes > 0; }
  // Sent again it is answered with the same events, given a seed. (Those of the Responses API carry names
  // that an instance draws.)
  bool may_go_on() const {
    return is_generated && is_streamed && may_be_repeated && api != RoutedApi::kResponses;
  }
};

inline constexpr std::size_t kPromptChunkBytes = 256;
// Beyond, a prompt's end is not looked at.
inline constexpr std::size_t kPromptKeysMax = 4'096;

// By the path without its query.
RoutedApi routed_api(std::string_view path);

// The key for prompts of the request's tenant, as its Authorization and X-Api-Key name it: what is remembered
// of one tenant's prompts is not found by another's.
PromptKey prompt_key_of(const HttpRequest& request, const PromptKey& cluster);

// Fronts and instances read the same body to the same keys. `key`: the tenant's. `path` without its query. At
// most linear in the body.
RoutedPrompt read_prompt(boost::beast::http::verb method, std::string_view path, std::string_view body,
                         const PromptKey& key);

// Gives a request without one a seed. `body`: read_prompt() has read it as one object.
void add_seed(std::string& body, std::uint64_t seed);

// The key of a conversation or response: RoutedPrompt::continues of who goes on from it.
std::uint64_t continued_key(std::string_view id, const PromptKey& key);

// "resp_..." of the beginning of a reply of the Responses API; empty: it has none.
std::string_view response_id_of(std::string_view reply);

// Whether a front passes requests to that path on. What only operators of an instance may ask is not among
// them: to an instance without keys a front on its own machine would be one.
bool is_routed_path(std::string_view path);

}  // namespace loci
