// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/openai/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

constexpr const char* kPromptForms =
    "a string, an array of strings, an array of token ids or an array of such arrays";

Status read_prompt_list(const Json& list, std::vector<Prompt>& out) {
  if (list.size() > kPromptsMax) {
    return invalid_argument(fmt::format("expected at most {} prompts; got {}", kPromptsMax, list.size()),
                            "prompt");
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string field = fmt::format("prompt[{}]", i);
    if (list[i].is_string()) {
      out.emplace_back(list[i].get<std::string>());
    } else if (list[i].is_array()) {
      LOCI_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, read_tokens(list[i], field));
      out.emplace_back(std::move(tokens));
    } else {
      return invalid_argument(
          fmt::format("expected a string or an array of token ids; got {}", json_excerpt(list[i])), field);
    }
  }
  return {};
}

Result<std::vector<Prompt>> read_prompts(const Json& prompt) {
  std::vector<Prompt> out;
  if (prompt.is_string()) {
    out.emplace_back(prompt.get<std::string>());
  } else if (!prompt.is_array() || prompt.empty()) {
    return invalid_argument(fmt::format("expected {}; got {}", kPromptForms, json_excerpt(prompt)), "prompt");
  } else if (prompt[0].is_number()) {
    LOCI_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, read_tokens(prompt, "prompt"));
    out.emplace_back(std::move(tokens));
  } else {
    LOCI_RETURN_IF_ERROR(read_prompt_list(prompt, out));
  }
  return out;
}

// best_of replies are made, n are given. How likely each is has to be known where there is a choice.
void read_best_of(FieldReader& reader, CompletionRequest& out) {
  GenerationFields& fields = out.fields;
  out.kept = fields.choices;
  reader.unsigned_integer("best_of", 1, kChoicesMax, fields.choices);
  if (!reader.ok() || fields.choices == out.kept) return;
  if (fields.choices < out.kept) {
    return reader.fail("best_of", fmt::format("expected at least n ({}); got {}", out.kept, fields.choices));
  }
  if (fields.stream) {
    return reader.fail("best_of", fmt::format("expected n ({}) where stream is true, as the best are known "
                                              "only at the end; got {}",
                                              out.kept, fields.choices));
  }
}

void read_echo(FieldReader& reader, CompletionRequest& out) {
  reader.boolean("echo", out.echo);
  // Its tokens are computed one by one, for each choice anew.
  if (out.scores_prompt() && out.fields.choices > 1)
    reader.fail(
        out.kept == out.fields.choices ? "n" : "best_of",
        fmt::format("expected 1 where echo and logprobs ask for the prompt's log-probabilities; got {}",
                    out.fields.choices));
  if (out.scores_prompt() && out.fields.stream)
    reader.fail("stream",
                "expected false where echo and logprobs ask for the prompt's log-probabilities; got true");
  if (out.scores_prompt() && out.fields.constraint)
    reader.fail("echo",
                "can't be combined with logprobs where the reply has a form (response_format, guided_...)");
}

}  // namespace

std::span<const std::string_view> completion_field_names() {
  static constexpr auto kNames = std::to_array<std::string_view>({"prompt"});
  return kNames;
}

Result<CompletionRequest> parse_completion_request(const Json& request, const RequestDefaults& defaults) {
  CompletionRequest out;
  FieldReader reader(request);
  read_generation_fields(reader, defaults, out.fields);
  if (!out.fields.max_tokens && !out.fields.is_unlimited)
    out.fields.max_tokens = std::max(kCompletionTokensDefault, out.fields.sampling.min_tokens);
  // An integer in OpenAI's API: how many alternatives to report. Some clients send false for none.
  if (const Json* logprobs = reader.find("logprobs"); logprobs != nullptr && *logprobs != false) {
    reader.unsigned_integer("logprobs", 0, kTopLogprobsMax, out.fields.sampling.top_logprobs);
    out.fields.sampling.logprobs = true;
  }
  read_best_of(reader, out);
  read_echo(reader, out);
  LOCI_RETURN_IF_ERROR(reader.status());
  const Json* prompt = reader.find("prompt");
  if (prompt == nullptr) return invalid_argument("is required", "prompt");
  LOCI_ASSIGN_OR_RETURN(out.prompts, read_prompts(*prompt));
  const char* field = out.kept == out.fields.choices ? "n" : "best_of";
  if (const std::size_t all = out.prompts.size() * out.fields.choices; all > kRequestChoicesMax) {
    return invalid_argument(fmt::format("expected at most {} replies of one request ({} * prompts); got {}",
                                        kRequestChoicesMax, field, all),
                            field);
  }
  return out;
}

}  // namespace loci
