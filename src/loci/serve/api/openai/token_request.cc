// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/openai/token_request.h"

#include "loci/serve/api/openai/chat_request.h"
#include "loci/serve/generation/generation_fields.h"
#include "loci/serve/wire/field_reader.h"
#include "loci/serve/wire/json.h"

namespace loci {

Result<TokenizeRequest> parse_tokenize_request(const Json& request) {
  TokenizeRequest out;
  FieldReader reader(request);
  const bool has_content = reader.find("content") != nullptr;
  const bool has_prompt = reader.find("prompt") != nullptr;
  const bool has_messages = reader.find("messages") != nullptr;
  LOCI_RETURN_IF_ERROR(reader.status());
  if (has_content + has_prompt + has_messages != 1) {
    return invalid_argument("expected exactly one of content, prompt and messages", "content");
  }
  // The defaults of the API whose field it is: llama.cpp adds no special token unasked, vLLM does.
  out.add_special = has_prompt;
  reader.text(has_content ? "content" : "prompt", out.text);
  reader.boolean("add_special", out.add_special);
  reader.boolean("add_special_tokens", out.add_special);
  reader.boolean("parse_special", out.parse_special);
  reader.boolean("with_pieces", out.with_pieces);
  reader.boolean("return_token_strs", out.with_texts);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (has_messages) {
    LOCI_ASSIGN_OR_RETURN(out.conversation, read_conversation(request));
  }
  return out;
}

Result<DetokenizeRequest> parse_detokenize_request(const Json& request) {
  DetokenizeRequest out;
  FieldReader reader(request);
  const Json* tokens = reader.find("tokens");
  LOCI_RETURN_IF_ERROR(reader.status());
  if (tokens == nullptr) return invalid_argument("is required", "tokens");
  LOCI_ASSIGN_OR_RETURN(out.tokens, read_tokens(*tokens, "tokens"));
  return out;
}

}  // namespace loci
