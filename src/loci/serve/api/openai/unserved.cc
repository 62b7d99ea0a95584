// SPDX-License-Identifier: Apache-2.0
// What clients ask for and this server does not have: /v1/embeddings, refused by an endpoint of its own, and
// paths of other or older APIs, whose refusal names what to use.
#include <array>
#include <string_view>

#include "loci/serve/api/openai/endpoints.h"

namespace loci {
namespace asio = boost::asio;

namespace {

struct Hint {
  std::string_view path;  // and whatever is below it
  std::string_view text;
};

constexpr auto kHints = std::to_array<Hint>({
    {"/v1/engines", "engines are called models now: /v1/models"},
    {"/v1/edits", "edits are served nowhere any more: use /v1/chat/completions"},
    {"/v1/complete", "text completions of Anthropic's are not served: use /v1/messages"},
    {"/v1/messages/batches", "batches are not served: send the messages one by one, at once if you like"},
    {"/v1/batches", "batches are not served: send the requests one by one, at once if you like"},
    {"/v1/files", "files are not kept: send their text in the messages"},
    {"/v1/uploads", "files are not kept: send their text in the messages"},
    {"/v1/assistants", "assistants and threads are not served: use /v1/responses and /v1/conversations"},
    {"/v1/threads", "assistants and threads are not served: use /v1/responses and /v1/conversations"},
    {"/v1/vector_stores", "the model makes no embeddings"},
    {"/v1/moderations", "the model does not moderate"},
    {"/v1/images", "the model makes no images"},
    {"/v1/audio", "the model neither hears nor speaks"},
    {"/v1/realtime", "the model neither hears nor speaks"},
    {"/v1/fine_tuning", "the server does not train"},
    {"/v1/fine-tunes", "the server does not train"},
    {"/v1/rerank", "the model does not rank"},
    {"/embeddings", "the model makes no embeddings"},
    {"/api", "Ollama's API is not served: use /v1/chat/completions"},
    {"/completion", "use /v1/completions"},
    {"/chat/completions", "the path begins with /v1: /v1/chat/completions"},
    {"/models", "the path begins with /v1: /v1/models"},
    {"/v1/v1", "the path has /v1 twice: take it off the client's base address"},
    {"/docs", "the API is described at /openapi.json"},
    {"/v1/responses/compact",
     "nothing is compacted: option context_overflow says what becomes of long conversations"},
    {"/v1/tokenize", "the path is /tokenize"},
    {"/v1/detokenize", "the path is /detokenize"},
    {"/props", "what is served is said by /v1/models"},
    {"/slots", "what runs is said by /metrics"},
    {"/version", "the version is said by /openapi.json"},
    {"/ping", "whether the server is there is said by /health"},
    {"/infill", "infilling is not served: use /v1/completions"},
    {"/apply-template", "the tokens of a conversation are said by /tokenize, with messages"},
});

asio::awaitable<void> refuse_embeddings(Call& call) {
  ApiError error = http_error(
      400,
      "this server's model writes text and makes no embeddings; ask a server with a model for embeddings",
      "unsupported_endpoint");
  co_await call.fail(std::move(error));
}

}  // namespace

std::string_view hint_for(std::string_view path) {
  for (const Hint& hint : kHints) {
    if (!path.starts_with(hint.path)) continue;
    if (path.size() == hint.path.size() || path[hint.path.size()] == '/') return hint.text;
  }
  return {};
}

void add_unserved_endpoints(Router& router, ApiServices&) {
  router.add({.method = boost::beast::http::verb::post,
              .pattern = "/v1/embeddings",
              .body = BodyKind::kAny,
              .handler = &refuse_embeddings});
}

}  // namespace loci
