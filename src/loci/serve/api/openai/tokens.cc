// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/openai/tokens.h"

#include <optional>
#include <utility>

#include "loci/serve/api/openai/token_request.h"
#include "loci/serve/generation/generation_fields.h"
#include "loci/serve/generation/prepare.h"
#include "loci/serve/history/token_history.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

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

namespace {

Result<std::vector<TokenId>> encode(TokenizeRequest request, const ServedModel& served) {
  if (request.conversation) {
    TokenHistory nothing;
    LOCI_ASSIGN_OR_RETURN(EncodedConversation out, encode_conversation(*std::move(request.conversation),
                                                                       "messages", served, nothing, ""));
    return std::move(out.tokens);
  }
  const ControlText control = request.parse_special ? ControlText::kAsControl : ControlText::kAsText;
  return encode_text(served.model->tokenizer, request.text, request.add_special, control);
}

}  // namespace

Result<std::vector<TokenId>> tokens_of_request(const Json& request, const ServedModel& served) {
  LOCI_ASSIGN_OR_RETURN(TokenizeRequest read, parse_tokenize_request(request));
  return encode(std::move(read), served);
}

std::variant<std::string, ApiError> tokenize(std::string_view body, const ServedModel& served) {
  const Result<Json> json = parse_json(body);
  if (!json.ok()) return api_error(json.status());
  Result<TokenizeRequest> request = parse_tokenize_request(*json);
  if (!request.ok()) return api_error(request.status());
  const Tokenizer& tokenizer = served.model->tokenizer;
  const bool with_pieces = request->with_pieces;
  const bool with_texts = request->with_texts;
  const Result<std::vector<TokenId>> tokens = encode(std::move(*request), served);
  if (!tokens.ok()) return api_error(tokens.status());
  Json list = Json::array();
  for (const TokenId token : *tokens) {
    if (with_pieces)
      list.push_back({{"id", token.value}, {"piece", tokenizer.token_bytes(token)}});
    else
      list.push_back(token.value);
  }
  Json answer = {
      {"tokens", std::move(list)}, {"count", tokens->size()}, {"max_model_len", served.context_tokens}};
  if (with_texts) {
    Json& texts = answer["token_strs"] = Json::array();
    for (const TokenId token : *tokens) texts.push_back(tokenizer.token_bytes(token));
  }
  return dump_json(answer);
}

std::variant<std::string, ApiError> detokenize(std::string_view body, const ServedModel& served) {
  const Result<Json> json = parse_json(body);
  if (!json.ok()) return api_error(json.status());
  Result<DetokenizeRequest> request = parse_detokenize_request(*json);
  if (!request.ok()) return api_error(request.status());
  if (Status status = check_tokens(request->tokens, served.model->tokenizer.vocabulary_size(), "tokens");
      !status.ok()) {
    return api_error(status);
  }
  Result<std::string> text = served.model->tokenizer.decode(request->tokens, ControlText::kAsControl);
  if (!text.ok()) return api_error(text.status());
  const Json answer = {{"content", *text}, {"prompt", *text}};
  return dump_json(answer);
}

}  // namespace loci
