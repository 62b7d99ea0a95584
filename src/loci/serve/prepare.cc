#include "loci/serve/prepare.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "loci/serve/chat_request.h"
#include "loci/serve/completion_request.h"
#include "loci/serve/json_parse.h"
#include "loci/serve/token_request.h"

namespace loci {
namespace {

using Prepared = std::variant<PreparedGeneration, ApiError>;

std::optional<ApiError> check_model(const std::string& name, const ServedModel& served) {
  if (name.empty() || name == served.model->id || name == "default") return std::nullopt;
  ApiError error = http_error(404,
                              fmt::format("model: '{}' is not served here; this server has '{}'",
                                          utf8_prefix(name, 200), served.model->id),
                              "model_not_found");
  error.param = "model";
  return error;
}

// A prompt begins with the model's beginning-of-sequence token where the model wants it.
Result<std::vector<TokenId>> encode_text(const Tokenizer& tokenizer, std::string_view text, bool add_special,
                                         ControlText control) {
  LOCI_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, tokenizer.encode(text, control));
  const std::optional<TokenId> bos = tokenizer.bos();
  if (add_special && bos && tokenizer.add_bos() && (tokens.empty() || tokens.front() != *bos)) {
    tokens.insert(tokens.begin(), *bos);
  }
  return tokens;
}

Result<std::vector<TokenId>> encode_chat(const ServedModel& served, const std::string& context) {
  if (!served.model->chat_template) {
    return invalid_argument("this model has no chat template; use /v1/completions", "messages");
  }
  Result<std::vector<TokenId>> tokens = served.model->chat_template->encode(context);
  if (tokens.ok()) return tokens;
  const Status status = tokens.status();
  return Status(status.code(), "the model's chat template: " + status.message(),
                status.field().empty() ? "messages" : status.field());
}

// What is checked once the model is known.
std::optional<ApiError> check_generation(PreparedGeneration& out, const ServedModel& served) {
  GenerationFields& fields = out.fields;
  if (auto error = check_model(fields.model, served)) return error;
  const std::uint32_t vocabulary = served.model->spec.vocabulary;
  if (Status status = validate_sampling(fields.sampling, vocabulary); !status.ok()) return api_error(status);
  if (Status status = check_tokens(fields.stop_token_ids, vocabulary, "stop_token_ids"); !status.ok()) {
    return api_error(status);
  }
  const char* name = out.shape == ApiShape::kChat ? "messages" : "prompt";
  for (std::size_t i = 0; i < out.prompts.size(); ++i) {
    const std::string field = out.prompts.size() == 1 ? name : fmt::format("{}[{}]", name, i);
    if (Status status = check_tokens(out.prompts[i], vocabulary, field); !status.ok())
      return api_error(status);
    if (out.prompts[i].empty())
      return api_error(invalid_argument("expected at least one token; got none", field));
    if (out.prompts[i].size() >= served.context_tokens) {
      return context_length_error(out.prompts[i].size(), served.context_tokens, field);
    }
  }
  out.stop_tokens = fields.stop_token_ids;
  if (!fields.ignore_eos) {
    const std::vector<TokenId>& ends = served.model->tokenizer.end_tokens();
    out.stop_tokens.insert(out.stop_tokens.end(), ends.begin(), ends.end());
  }
  return std::nullopt;
}

Prepared finish(PreparedGeneration out, const ServedModel& served) {
  if (auto error = check_generation(out, served)) return *std::move(error);
  return out;
}

}  // namespace

Prepared prepare_chat(std::string_view body, const ServedModel& served) {
  const Result<nlohmann::json> json = parse_json(body);
  if (!json.ok()) return api_error(json.status());
  Result<ChatRequest> request = parse_chat_request(*json);
  if (!request.ok()) return api_error(request.status());
  Result<std::vector<TokenId>> tokens = encode_chat(served, request->template_context);
  if (!tokens.ok()) return api_error(tokens.status());
  PreparedGeneration out{
      .shape = ApiShape::kChat, .fields = std::move(request->fields), .prompts = {}, .stop_tokens = {}};
  out.prompts.push_back(std::move(*tokens));
  return finish(std::move(out), served);
}

Prepared prepare_completion(std::string_view body, const ServedModel& served) {
  const Result<nlohmann::json> json = parse_json(body);
  if (!json.ok()) return api_error(json.status());
  Result<CompletionRequest> request = parse_completion_request(*json);
  if (!request.ok()) return api_error(request.status());
  PreparedGeneration out{
      .shape = ApiShape::kCompletion, .fields = std::move(request->fields), .prompts = {}, .stop_tokens = {}};
  for (Prompt& prompt : request->prompts) {
    if (auto* tokens = std::get_if<std::vector<TokenId>>(&prompt)) {
      out.prompts.push_back(std::move(*tokens));
      continue;
    }
    // Whoever writes a raw prompt writes its control tokens too, as with llama.cpp and vLLM.
    Result<std::vector<TokenId>> tokens =
        encode_text(served.model->tokenizer, std::get<std::string>(prompt), true, ControlText::kAsControl);
    if (!tokens.ok()) return api_error(tokens.status());
    out.prompts.push_back(std::move(*tokens));
  }
  return finish(std::move(out), served);
}

std::variant<std::string, ApiError> tokenize(std::string_view body, const ServedModel& served) {
  const Result<nlohmann::json> json = parse_json(body);
  if (!json.ok()) return api_error(json.status());
  Result<TokenizeRequest> request = parse_tokenize_request(*json);
  if (!request.ok()) return api_error(request.status());
  const Tokenizer& tokenizer = served.model->tokenizer;
  const ControlText control = request->parse_special ? ControlText::kAsControl : ControlText::kAsText;
  Result<std::vector<TokenId>> tokens =
      request->template_context ? encode_chat(served, *request->template_context)
                                : encode_text(tokenizer, request->text, request->add_special, control);
  if (!tokens.ok()) return api_error(tokens.status());
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const TokenId token : *tokens) {
    if (request->with_pieces)
      list.push_back({{"id", token.value}, {"piece", tokenizer.token_bytes(token)}});
    else
      list.push_back(token.value);
  }
  const nlohmann::ordered_json answer = {
      {"tokens", std::move(list)}, {"count", tokens->size()}, {"max_model_len", served.context_tokens}};
  return answer.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::variant<std::string, ApiError> detokenize(std::string_view body, const ServedModel& served) {
  const Result<nlohmann::json> json = parse_json(body);
  if (!json.ok()) return api_error(json.status());
  Result<DetokenizeRequest> request = parse_detokenize_request(*json);
  if (!request.ok()) return api_error(request.status());
  if (Status status = check_tokens(request->tokens, served.model->tokenizer.vocabulary_size(), "tokens");
      !status.ok()) {
    return api_error(status);
  }
  Result<std::string> text = served.model->tokenizer.decode(request->tokens, ControlText::kAsControl);
  if (!text.ok()) return api_error(text.status());
  const nlohmann::ordered_json answer = {{"content", *text}, {"prompt", *text}};
  return answer.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace loci
