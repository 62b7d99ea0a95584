// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/routed_request.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <tuple>

#include "loci/policy/routing/named_chunks.h"
#include "loci/policy/routing/prefill_choice.h"
#include "loci/serve/tenants/tenants.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"
#include "loci/serve/wire/percent.h"

namespace loci {
namespace http = boost::beast::http;

namespace {

static_assert(crypto_shorthash_KEYBYTES == std::tuple_size_v<PromptKey>);

// How long the input of a response would be.
constexpr std::string_view kInputTokens = "/v1/responses/input_tokens";

// What names hang from that hang from nothing else.
constexpr std::uint64_t kBeginning = 1, kContinued = 2;

// SipHash-2-4.
std::uint64_t keyed_hash(const PromptKey& key, const void* bytes, std::size_t count) {
  std::uint64_t out = 0;
  crypto_shorthash(reinterpret_cast<unsigned char*>(&out), static_cast<const unsigned char*>(bytes), count,
                   key.data());
  return out;
}

// The name of a text that follows what `above` names.
std::uint64_t name_of(const PromptKey& key, std::uint64_t above, std::string_view text) {
  const std::array<std::uint64_t, 2> pair = {above, keyed_hash(key, text.data(), text.size())};
  return keyed_hash(key, pair.data(), sizeof pair);
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : dump_json(value);
}

std::string member_text(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at == object.end() ? std::string() : text_of(*at);
}

// The text of the prompt, in an order in which a later turn's begins with an earlier one's: what stands
// before the messages, then each message.
struct PromptText {
  std::string text;
  std::size_t beginning_bytes = 0;  // up to the end of the first message that is not the system's

  void add(std::string_view part) {
    text += part;
    text += '\n';
  }
  void add_messages(const Json& messages) {
    if (!messages.is_array()) return add(text_of(messages));
    for (const Json& message : messages) {
      const std::string role = message.is_object() ? member_text(message, "role") : "";
      // The usual message without writing it as JSON again.
      const bool is_text = !role.empty() && message.size() == 2 && message.contains("content") &&
                           message["content"].is_string();
      if (is_text) add(role);
      add(is_text ? message["content"].get_ref<const std::string&>() : text_of(message));
      if (beginning_bytes == 0 && role != "system" && role != "developer") beginning_bytes = text.size();
    }
  }
};

// The fields that are a prompt at that path: those that stand before the messages, and these.
struct PromptFields {
  std::vector<const char*> before, messages;
};

// An endpoint ignores others' fields, so what they say is in no prompt.
PromptFields prompt_fields(std::string_view path) {
  if (path == "/v1/chat/completions") return {{"tools"}, {"messages"}};
  if (path == "/v1/completions") return {{}, {"prompt"}};
  if (path == "/v1/messages") return {{"tools", "system"}, {"messages"}};
  if (path == "/v1/responses" || path == kInputTokens) return {{"tools", "instructions"}, {"input"}};
  return {{"tools", "system", "instructions"}, {"messages", "prompt", "input"}};
}

PromptText prompt_text(const Json& request, std::string_view path) {
  PromptText out;
  const PromptFields fields = prompt_fields(path);
  for (const char* name : fields.before) {
    if (request.contains(name)) out.add(member_text(request, name));
  }
  for (const char* name : fields.messages) {
    const auto at = request.find(name);
    if (at != request.end()) out.add_messages(*at);
  }
  if (out.beginning_bytes == 0) out.beginning_bytes = std::min(out.text.size(), kPromptChunkBytes);
  return out;
}

// "conv_1" of "conv_1" or {"id": "conv_1"}.
std::string id_of(const Json& request, const char* name) {
  const auto at = request.find(name);
  if (at == request.end()) return {};
  if (at->is_string()) return at->get<std::string>();
  const auto id = at->is_object() ? at->find("id") : at->end();
  return at->is_object() && id != at->end() && id->is_string() ? id->get<std::string>() : std::string();
}

// Several prompts of which none is worth to be handed over.
bool has_short_prompts(const Json& request) {
  const auto prompts = request.find("prompt");
  if (prompts == request.end() || !prompts->is_array() || prompts->size() < 2 || prompts->front().is_number())
    return false;
  return std::ranges::none_of(*prompts,
                              [](const Json& one) { return text_of(one).size() >= kHandedBytesMin; });
}

bool scores_prompt(const Json& request) {
  const auto echo = request.find("echo"), logprobs = request.find("logprobs");
  return echo != request.end() && echo->is_boolean() && echo->get<bool>() && logprobs != request.end() &&
         !logprobs->is_null();
}

void read_body(std::string_view path, std::string_view body, const PromptKey& key, RoutedPrompt& out) {
  const Result<Json> parsed = parse_json(body);
  if (!parsed.ok() || !parsed->is_object()) return;
  const Json& request = *parsed;
  if (const auto model = request.find("model"); model != request.end() && model->is_string())
    out.model = model->get<std::string>();
  const auto stream = request.find("stream");
  out.is_streamed = stream != request.end() && stream->is_boolean() && stream->get<bool>();
  if (out.begins_response) {
    // In the background it goes on at the instance, whoever asks for it.
    const auto background = request.find("background");
    out.may_be_repeated = background == request.end() || background->is_null() ||
                          (background->is_boolean() && !background->get<bool>());
  }
  if (out.begins_response || path == kInputTokens) {
    const std::string conversation = id_of(request, "conversation");
    const std::string previous = id_of(request, "previous_response_id");
    out.is_conversation = !conversation.empty();
    if (out.is_conversation || !previous.empty())
      out.continues = continued_key(out.is_conversation ? conversation : previous, key);
  }
  out.may_be_handed = !(path == "/v1/completions" && (has_short_prompts(request) || scores_prompt(request)));
  const PromptText prompt = prompt_text(request, path);
  out.bytes = prompt.text.size();
  const std::string_view text = prompt.text;
  out.beginning = name_of(key, kBeginning, text.substr(0, prompt.beginning_bytes));
  if (!out.is_generated) return;
  // The same words are another prompt where another conversation goes on with them.
  std::uint64_t name = name_of(key, out.continues.value_or(0), out.model);
  const std::size_t chunks = std::min(text.size() / kPromptChunkBytes, kPromptChunksMax);
  for (std::size_t i = 0; i < chunks; ++i) {
    name = name_of(key, name, text.substr(i * kPromptChunkBytes, kPromptChunkBytes)) & ~kTierBits;
    if (i + 1 == chunks_of_names(out.keys.size() + 1)) out.keys.push_back(name);
  }
}

std::string_view rest_after(std::string_view path, std::string_view prefix) {
  return path.starts_with(prefix) ? path.substr(prefix.size()) : std::string_view();
}
// "abc" of "/v1/responses/abc/cancel" where `prefix` is "/v1/responses/".
std::string_view id_after(std::string_view path, std::string_view prefix) {
  const std::string_view rest = rest_after(path, prefix);
  return rest.substr(0, rest.find('/'));
}

bool computes_only(std::string_view path) {
  return path == "/v1/chat/completions" || path == "/v1/completions" || path.starts_with("/v1/messages") ||
         path == kInputTokens || path == "/tokenize" || path == "/detokenize";
}

// What is cancelled twice is cancelled once.
bool cancels(http::verb method, std::string_view path) {
  return method == http::verb::post && path.starts_with("/v1/responses/") && path.ends_with("/cancel");
}

// Counting tokens or calling a tokenizer costs a client nothing, and leaves nothing at the instance.
bool generates(http::verb method, std::string_view path) {
  return method == http::verb::post && (path == "/v1/chat/completions" || path == "/v1/completions" ||
                                        path == "/v1/messages" || path == "/v1/responses");
}

}  // namespace

std::uint64_t continued_key(std::string_view id, const PromptKey& key) {
  return name_of(key, kContinued, id);
}

PromptKey prompt_key_of(const HttpRequest& request, const PromptKey& cluster) {
  const std::string_view key = api_key_of(request);
  PromptKey out{};
  static_assert(crypto_shorthash_siphashx24_BYTES == std::tuple_size_v<PromptKey>);
  crypto_shorthash_siphashx24(out.data(), reinterpret_cast<const unsigned char*>(key.data()), key.size(),
                              cluster.data());
  return out;
}

RoutedApi routed_api(std::string_view path) {
  if (path == "/v1/responses" || path.starts_with("/v1/responses/")) return RoutedApi::kResponses;
  return path.starts_with("/v1/messages") ? RoutedApi::kMessages : RoutedApi::kOpenAi;
}

RoutedPrompt read_prompt(http::verb method, std::string_view path, std::string_view body,
                         const PromptKey& key) {
  RoutedPrompt out;
  const bool reads = method == http::verb::get || method == http::verb::head || method == http::verb::options;
  out.may_be_repeated = reads || computes_only(path) || cancels(method, path);
  out.is_generated = generates(method, path);
  out.api = routed_api(path);
  out.begins_response = path == "/v1/responses" && method == http::verb::post;
  for (const std::string_view prefix : {"/v1/responses/", "/v1/conversations/"}) {
    const std::string_view id = id_after(path, prefix);
    if (!id.empty() && path != kInputTokens) out.continues = continued_key(id, key);
  }
  out.model = percent_decoded(rest_after(path, "/v1/models/"));
  if (!body.empty()) read_body(path, body, key, out);
  return out;
}

std::string_view response_id_of(std::string_view reply) {
  constexpr std::string_view kBegin = "\"id\":\"resp_";
  constexpr std::size_t kIdBytesMax = 128;
  const std::size_t at = reply.substr(0, 4'096).find(kBegin);
  if (at == std::string_view::npos) return {};
  const std::string_view id = reply.substr(at + kBegin.size() - 5);
  const std::size_t end = id.substr(0, kIdBytesMax).find('"');
  return end == std::string_view::npos ? std::string_view() : id.substr(0, end);
}

bool is_routed_path(std::string_view path) {
  if (path == "/tokenize" || path == "/detokenize" || path == "/openapi.json") return true;
  return path.starts_with("/v1/") && path != "/v1/loci" && !path.starts_with("/v1/loci/");
}

}  // namespace loci
