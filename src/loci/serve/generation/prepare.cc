// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "loci/serve/reply/completion_format.h"
#include "loci/serve/request/chat_request.h"
#include "loci/serve/request/completion_request.h"
#include "loci/serve/request/json.h"
#include "loci/serve/request/json_parse.h"
#include "loci/serve/request/response_format.h"
#include "loci/serve/request/token_request.h"
#include "loci/serve/request/unknown_fields.h"
#include "loci/serve/tools/tool_grammar.h"

namespace loci {

std::optional<ApiError> check_model(const std::string& name, const ServedModel& served) {
  const std::vector<std::string>& aliases = served.aliases;
  if (name.empty() || name == served.model->id || name == "default" || served.any_name ||
      std::find(aliases.begin(), aliases.end(), name) != aliases.end()) {
    return std::nullopt;
  }
  ApiError error =
      http_error(404,
                 fmt::format("model: '{}' is not served here; this server has '{}' (option alias "
                             "gives it other names, any_model any)",
                             utf8_prefix(name, 200), served.model->id),
                 "model_not_found");
  error.param = "model";
  return error;
}

namespace {

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

}  // namespace

namespace {

// Cuts the prompts that do not fit, where that is wanted.
std::optional<ApiError> fit_prompts(PreparedGeneration& out, const ServedModel& served,
                                    std::string_view name) {
  const bool truncates = out.overflow.value_or(served.overflow.overflow) == ContextOverflow::kTruncate;
  out.dropped.assign(out.prompts.size(), {});
  for (std::size_t i = 0; i < out.prompts.size(); ++i) {
    const std::size_t tokens = out.prompts[i].size();
    if (truncates && tokens > uncut_tokens(served.overflow.truncation) && tokens <= UINT32_MAX) {
      const Result<Truncation> truncation = Truncation::make(
          served.overflow.truncation,
          {.front_tokens = out.front_tokens, .reply_tokens = out.fields.max_tokens.value_or(0)});
      if (truncation.ok()) {
        out.dropped[i] = truncation->cuts(static_cast<std::uint32_t>(tokens));
      } else if (tokens >= served.context_tokens) {
        ApiError error = http_error(400, fmt::format("{}: {}", name, truncation.status().message()),
                                    "context_length_exceeded");
        error.param = std::string(name);
        return error;
      }
    }
    if (kept_tokens(out, i) >= served.context_tokens) {
      const std::string field = out.prompts.size() == 1 ? std::string(name) : fmt::format("{}[{}]", name, i);
      return context_length_error(tokens, served.context_tokens, field);
    }
  }
  return std::nullopt;
}

}  // namespace

Prepared check_generation(PreparedGeneration out, const ServedModel& served, std::string_view name) {
  GenerationFields& fields = out.fields;
  if (auto error = check_model(fields.model, served)) return *std::move(error);
  const std::uint32_t vocabulary = served.model->spec.vocabulary;
  if (Status status = validate_sampling(fields.sampling, vocabulary); !status.ok()) return api_error(status);
  if (Status status = check_tokens(fields.stop_token_ids, vocabulary, "stop_token_ids"); !status.ok()) {
    return api_error(status);
  }
  for (std::size_t i = 0; i < out.prompts.size(); ++i) {
    const std::string field = out.prompts.size() == 1 ? std::string(name) : fmt::format("{}[{}]", name, i);
    if (Status status = check_tokens(out.prompts[i], vocabulary, field); !status.ok())
      return api_error(status);
    if (out.prompts[i].empty())
      return api_error(invalid_argument("expected at least one token; got none", field));
  }
  if (auto error = fit_prompts(out, served, name)) return *std::move(error);
  if (fields.constraint && out.grammar == nullptr) {
    Result<std::shared_ptr<const Grammar>> grammar =
        served.model->grammars->compile(fields.constraint->source);
    if (!grammar.ok())
      return api_error(invalid_argument(grammar.status().message(), fields.constraint->field));
    out.grammar = std::move(*grammar);
  }
  out.stop_tokens = fields.stop_token_ids;
  if (!fields.ignore_eos) {
    const std::vector<TokenId>& ends = served.model->tokenizer.end_tokens();
    out.stop_tokens.insert(out.stop_tokens.end(), ends.begin(), ends.end());
  }
  return out;
}

namespace {

// The prompt's last words are the mark that opens reasoning.
bool opens_reasoning(const OutputSyntax& syntax, const Tokenizer& tokenizer,
                     std::span<const TokenId> prompt) {
  if (syntax.reasoning_open.empty()) return false;
  const Result<std::string> text =
      tokenizer.decode(prompt.last(std::min<std::size_t>(prompt.size(), 16)), ControlText::kAsControl);
  if (!text.ok()) return false;
  const auto trim = [](std::string_view end) { return end.substr(0, end.find_last_not_of(" \n\r\t") + 1); };
  return trim(*text).ends_with(trim(syntax.reasoning_open));
}

// The parameters of each tool that are strings, for syntaxes that don't quote them.
std::map<std::string, std::vector<std::string>> text_parameters(const ToolUse& use) {
  std::map<std::string, std::vector<std::string>> out;
  for (const Tool& tool : use.tools) {
    const Json schema = tool.parameters();
    const auto properties = schema.find("properties");
    if (properties == schema.end() || !properties->is_object()) continue;
    for (const auto& [name, property] : properties->items()) {
      if (property.is_object() && property.value("type", Json()) == "string") out[tool.name].push_back(name);
    }
  }
  return out;
}

void set_parser(const ToolUse& use, const ServedModel& served, PreparedGeneration& out) {
  const OutputSyntax& syntax = served.chat.output;
  if (!use.any() && !syntax.always_parsed()) return;
  OutputParserOptions options;
  options.begins_in_reasoning = opens_reasoning(syntax, served.model->tokenizer, out.prompts.front());
  if (use.any()) {
    for (const Tool& tool : use.tools) options.tool_names.push_back(tool.name);
    options.text_parameters = text_parameters(use);
  }
  out.parser = std::move(options);
  out.one_call = use.any() && use.one_call();
}

// The tokens by which calls begin are not drawn where the reply may have none. A call that the model spells
// otherwise comes as text.
void forbid_calls(const ToolUse& use, const ServedModel& served, PreparedGeneration& out) {
  if (use.tools.empty() || use.choice != ToolChoice::kNone) return;
  auto& bias = out.fields.sampling.logit_bias;
  const OutputSyntax& syntax = served.chat.output;
  for (const auto* marks : {&syntax.call_open, &syntax.wrappers}) {
    for (const std::string& mark : *marks) {
      const bool is_mark = mark.starts_with('<') || mark.starts_with('[');
      const std::optional<TokenId> token = is_mark ? served.model->tokenizer.find(mark) : std::nullopt;
      if (!token) continue;
      std::erase_if(bias, [&](const auto& one) { return one.first == *token; });
      bias.emplace_back(*token, -kBiasMax);
    }
  }
}

// What a reply that must call is held to. The prompt is there, and the parser's options.
Status set_grammar(const ToolUse& use, const ServedModel& served, PreparedGeneration& out) {
  const Tokenizer& tokenizer = served.model->tokenizer;
  const auto control = [&](std::string_view text) -> std::optional<TokenId> {
    const std::optional<TokenId> token = tokenizer.find(text);
    return token && tokenizer.is_control(*token) ? token : std::nullopt;
  };
  const bool in_reasoning = out.parser && out.parser->begins_in_reasoning;
  LOCI_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                        tool_grammar(use, served.chat.output, control, in_reasoning));
  if (!text) return {};
  auto grammar = served.model->grammars->compile({.kind = GrammarKind::kLark, .text = *text});
  if (!grammar.ok()) return invalid_argument("their schemas: " + grammar.status().message(), "tools");
  out.grammar = std::move(*grammar);
  return {};
}

Prepared prepare_parsed(ChatRequest request, const ServedModel& served, TokenHistory& history,
                        std::string_view tenant, std::optional<ContextOverflow> overflow) {
  Result<std::vector<TokenId>> tokens = history.encode(*served.model, tenant, request.template_context);
  if (!tokens.ok()) return api_error(tokens.status());
  PreparedGeneration out;
  out.overflow = overflow;
  if (overflow.value_or(served.overflow.overflow) == ContextOverflow::kTruncate &&
      tokens->size() > uncut_tokens(served.overflow.truncation)) {
    out.front_tokens = system_prompt_tokens(*served.model->chat_template, request.template_context, *tokens);
  }
  out.fields = std::move(request.fields);
  out.unknown_fields = std::move(request.unknown_fields);
  out.prompts.push_back(std::move(*tokens));
  set_parser(request.tools, served, out);
  forbid_calls(request.tools, served, out);
  if (Status status = set_grammar(request.tools, served, out); !status.ok()) return api_error(status);
  // What a constraint alone writes begins with its first word, and is text.
  if (out.fields.constraint && !out.grammar) out.parser.reset();
  return check_generation(std::move(out), served, "messages");
}

}  // namespace

Prepared prepare_chat(std::string_view body, const ServedModel& served, TokenHistory& history,
                      std::string_view tenant) {
  const Result<Json> json = parse_json(body);
  if (!json.ok()) return api_error(json.status());
  return prepare_chat_request(*json, served, history, tenant);
}

Prepared prepare_chat_request(const Json& json, const ServedModel& served, TokenHistory& history,
                              std::string_view tenant, std::optional<ContextOverflow> overflow) {
  Result<ChatRequest> request = parse_chat_request(json, served.chat, served.defaults);
  if (!request.ok()) return api_error(request.status());
  return prepare_parsed(std::move(*request), served, history, tenant, overflow);
}

namespace {

// The prompt's own text; of tokens, what they spell.
Result<std::string> text_of(const Prompt& prompt, const Tokenizer& tokenizer) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
  return tokenizer.decode(std::get<std::vector<TokenId>>(prompt), ControlText::kAsControl);
}

}  // namespace

Prepared prepare_completion(std::string_view body, const ServedModel& served, ReplyHead head) {
  const Result<Json> json = parse_json(body);
  if (!json.ok()) return api_error(json.status());
  Result<CompletionRequest> request = parse_completion_request(*json, served.defaults);
  if (!request.ok()) return api_error(request.status());
  PreparedGeneration out;
  out.unknown_fields = unknown_fields(*json, {generation_field_names(), completion_field_names()});
  out.fields = std::move(request->fields);
  head.logprobs = out.fields.sampling.logprobs;
  head.include_usage = out.fields.include_usage;
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
    Result<std::vector<TokenId>> tokens =
        encode_text(served.model->tokenizer, std::get<std::string>(prompt), true, ControlText::kAsControl);
    if (!tokens.ok()) return api_error(tokens.status());
    out.prompts.push_back(std::move(*tokens));
  }
  Prepared checked = check_generation(std::move(out), served, "prompt");
  auto* prepared = std::get_if<PreparedGeneration>(&checked);
  if (prepared == nullptr) return checked;
  for (const Prompt& prompt : echoed) {
    Result<std::string> text = text_of(prompt, served.model->tokenizer);
    if (!text.ok()) return api_error(text.status());
    shape.echoed.push_back(std::move(*text));
  }
  prepared->format = std::make_unique<CompletionFormat>(std::move(head), std::move(shape));
  return checked;
}

std::variant<std::string, ApiError> tokenize(std::string_view body, const ServedModel& served) {
  const Result<Json> json = parse_json(body);
  if (!json.ok()) return api_error(json.status());
  Result<TokenizeRequest> request = parse_tokenize_request(*json, served.chat);
  if (!request.ok()) return api_error(request.status());
  const Tokenizer& tokenizer = served.model->tokenizer;
  const ControlText control = request->parse_special ? ControlText::kAsControl : ControlText::kAsText;
  Result<std::vector<TokenId>> tokens =
      request->template_context ? TokenHistory().encode(*served.model, "", *request->template_context)
                                : encode_text(tokenizer, request->text, request->add_special, control);
  if (!tokens.ok()) return api_error(tokens.status());
  Json list = Json::array();
  for (const TokenId token : *tokens) {
    if (request->with_pieces)
      list.push_back({{"id", token.value}, {"piece", tokenizer.token_bytes(token)}});
    else
      list.push_back(token.value);
  }
  const Json answer = {
      {"tokens", std::move(list)}, {"count", tokens->size()}, {"max_model_len", served.context_tokens}};
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace);
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
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace loci
