// SPDX-License-Identifier: Apache-2.0
// Names a request's prompt, as fronts and instances both do, and reads what else a front routes it by. The
// front passes the request on unchanged, and the instance judges it: a request that cannot be read here is
// routed all the same.
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

// The API whose form of errors a client of the path understands; kOpenAi for all paths but two kinds.
enum class RoutedApi : std::uint8_t { kOpenAi, kMessages, kResponses };

struct RoutedPrompt {
  std::string model;  // empty: the request names none
  // Names of the prompt's text: one for each whole chunk of kPromptChunkBytes that has one
  // (policy/routing/named_chunks.h). Each is a hash of all text up to the chunk's end and of the conversation
  // that the prompt continues. Their last two bits are 0. None where nothing is generated.
  std::vector<std::uint64_t> keys;
  std::uint64_t bytes = 0;                 // of the prompt's text
  std::uint64_t beginning = 0;             // hash of the system prompt and the first message, which is the
                                           // same in all turns
  std::optional<std::uint64_t> continues;  // key of the conversation or response that it continues
  bool is_conversation = false;            // it continues a conversation, not a response
  bool is_generated = false;               // a model computes the answer and keeps the prompt's state
  bool may_be_repeated = true;  // it may be sent twice: it stores nothing, or a response, under the
                                // name that a front gives it (resumed_request.h)
  bool may_be_handed = true;    // its prompt may be computed by another member than its reply
  bool is_streamed = false;     // it asks for a stream of events
  RoutedApi api = RoutedApi::kOpenAi;
  bool begins_response = false;  // POST /v1/responses: later requests may continue its response

  // True: something is computed for it.
  bool is_new_work() const { return bytes > 0; }
  // True: an instance is given the reply's name, so that another one's reply is the same.
  bool is_named() const { return is_generated && may_be_repeated; }
  // True: another instance can go on with the reply.
  bool may_go_on() const { return is_named() && is_streamed; }
};

inline constexpr std::size_t kPromptChunkBytes = 256;
// At most this many chunks; the rest of a longer prompt is not looked at.
inline constexpr std::size_t kPromptChunksMax = 4'096;

// The API of a path; `path` without its query.
RoutedApi routed_api(std::string_view path);

// The key for prompts of the request's tenant, whom its API key stands for (api_key_of()): what is remembered
// of one tenant's prompts is not found by another's.
PromptKey prompt_key_of(const HttpRequest& request, const PromptKey& cluster);

// Fronts and instances read the same body to the same keys. `key`: the tenant's. `path` without its query. At
// most linear in the body.
RoutedPrompt read_prompt(boost::beast::http::verb method, std::string_view path, std::string_view body,
                         const PromptKey& key);

// The key of a conversation or response, as RoutedPrompt::continues of a request that continues it.
std::uint64_t continued_key(std::string_view id, const PromptKey& key);

// The id "resp_..." in the beginning of a reply of the Responses API; empty: it has none.
std::string_view response_id_of(std::string_view reply);

// True: a front passes requests to that path on. Paths for operators of an instance are not among them: an
// instance without keys would take a front on its own machine for an operator.
bool is_routed_path(std::string_view path);

}  // namespace loci
