// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/openai/tokens.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "loci/base/units.h"
#include "loci/model/utf8.h"
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

// --- an answer as text: a tree of millions of values would take a hundred times the bytes ---

// In place of the comma behind the last element.
void end_list(std::string& out) {
  if (out.back() == ',') out.pop_back();
  out += ']';
}

void append_ids(std::string& out, const std::vector<TokenId>& tokens) {
  for (const TokenId token : tokens) fmt::format_to(std::back_inserter(out), "{},", token.value);
}

std::string bytes_json(std::string_view bytes) {
  std::string out = "[";
  for (const char byte : bytes)
    fmt::format_to(std::back_inserter(out), "{},", static_cast<unsigned char>(byte));
  end_list(out);
  return out;
}

// llama.cpp's: a text, or the bytes of a part of a character.
void append_pieces(std::string& out, const std::vector<TokenId>& tokens, const Tokenizer& tokenizer) {
  for (const TokenId token : tokens) {
    const std::string bytes = tokenizer.token_bytes(token);
    const std::string piece = is_utf8(bytes) ? dump_json(bytes) : bytes_json(bytes);
    fmt::format_to(std::back_inserter(out), R"({{"id":{},"piece":{}}},)", token.value, piece);
  }
}

void append_texts(std::string& out, const std::vector<TokenId>& tokens, const Tokenizer& tokenizer) {
  for (const TokenId token : tokens) out += dump_json(tokenizer.token_bytes(token)) + ',';
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
  if ((with_pieces || with_texts) && tokens->size() > kShownTokensMax) {
    return api_error(invalid_argument(
        fmt::format(
            "the text of each token is shown of at most {} tokens, and these are {}; leave it out, or "
            "send a shorter text",
            format_count(kShownTokensMax), format_count(tokens->size())),
        with_pieces ? "with_pieces" : "return_token_strs"));
  }
  std::string answer = R"({"tokens":[)";
  if (with_pieces)
    append_pieces(answer, *tokens, tokenizer);
  else
    append_ids(answer, *tokens);
  end_list(answer);
  answer += fmt::format(R"(,"count":{},"max_model_len":{})", tokens->size(), served.context_tokens);
  if (with_texts) {
    answer += R"(,"token_strs":[)";
    append_texts(answer, *tokens, tokenizer);
    end_list(answer);
  }
  return answer + '}';
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
  std::size_t bytes = 0;
  for (const TokenId token : request->tokens) bytes += served.model->tokenizer.token_spelling(token).size();
  if (bytes > kTextBytesMax) {
    return api_error(
        invalid_argument(fmt::format("expected tokens that spell a text of at most {}, found {}; send fewer",
                                     format_bytes(kTextBytesMax), format_bytes(bytes)),
                         "tokens"));
  }
  Result<std::string> text = served.model->tokenizer.decode(request->tokens, ControlText::kAsControl);
  if (!text.ok()) return api_error(text.status());
  const std::string shown = dump_json(Json(std::move(*text)));
  return fmt::format(R"({{"content":{},"prompt":{}}})", shown, shown);
}

}  // namespace loci
