// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/openai/prepare_completions.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "loci/serve/api/openai/chat_request.h"
#include "loci/serve/api/openai/completion_format.h"
#include "loci/serve/api/openai/completion_request.h"
#include "loci/serve/api/openai/tokens.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

Prepared prepare_chat_completion(std::string_view body, const ServedModel& served, TokenHistory& history,
                                 std::string_view tenant) {
  const Result<Json> json = parse_json(body);
  if (!json.ok()) return api_error(json.status());
  Result<ChatRequest> request = parse_chat_request(*json, served.defaults);
  if (!request.ok()) return api_error(request.status());
  return prepare_chat(std::move(*request), "messages", served, history, tenant);
}

namespace {

// The prompt's own text; of tokens, what they spell.
Result<std::string> text_of(const Prompt& prompt, const Tokenizer& tokenizer) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
  return tokenizer.decode(std::get<std::vector<TokenId>>(prompt), ControlText::kAsControl);
}

}  // namespace

Prepared prepare_completion(std::string_view body, const ServedModel& served, ReplyHead head,
                            std::string_view tenant) {
  const Result<Json> json = parse_json(body);
  if (!json.ok()) return api_error(json.status());
  Result<CompletionRequest> request = parse_completion_request(*json, served.defaults);
  if (!request.ok()) return api_error(request.status());
  PreparedGeneration out;
  out.unknown_fields = unknown_generation_fields(*json, completion_field_names());
  out.fields = std::move(request->fields);
  head.logprobs = out.fields.sampling.logprobs;
  head.include_usage = out.fields.include_usage;
  head.continuous_usage = out.fields.continuous_usage;
  CompletionShape shape{.echoed = {}, .generated = out.fields.choices, .kept = request->kept};
  if (shape.kept < shape.generated) out.fields.sampling.logprobs = true;  // to choose by
  out.scores_prompt = request->scores_prompt();
  if (out.scores_prompt) out.overflow = ContextOverflow::kRefuse;
  const std::vector<Prompt> echoed = request->echo ? request->prompts : std::vector<Prompt>();
  for (Prompt& prompt : request->prompts) {
    if (auto* tokens = std::get_if<std::vector<TokenId>>(&prompt)) {
      out.prompts.push_back(std::move(*tokens));
      continue;
    }
    // Whoever writes a raw prompt writes its control tokens too, as with llama.cpp and vLLM.
    const auto& text = std::get<std::string>(prompt);
    const std::string_view texts[] = {text};
    const std::string field = prompt_field("prompt", out.prompts.size(), request->prompts.size());
    if (auto error = refuse_long_prompt(texts, ControlText::kAsControl, out.overflow, served, field))
      return *std::move(error);
    Result<std::vector<TokenId>> tokens =
        encode_text(served.model->tokenizer, text, true, ControlText::kAsControl);
    if (!tokens.ok()) return api_error(tokens.status());
    out.prompts.push_back(std::move(*tokens));
  }
  Prepared checked = check_generation(std::move(out), served, tenant, "prompt");
  auto* prepared = std::get_if<PreparedGeneration>(&checked);
  if (prepared == nullptr) return checked;
  for (const Prompt& prompt : echoed) {
    Result<std::string> text = text_of(prompt, served.model->tokenizer);
    if (!text.ok()) return api_error(text.status());
    shape.echoed.push_back(std::move(*text));
  }
  prepared->format = make_completion_format(std::move(head), std::move(shape));
  return checked;
}

}  // namespace loci
