// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "loci/serve/conversation/final_message.h"
#include "loci/serve/conversation/template_context.h"
#include "loci/serve/conversation/tool_grammar.h"
#include "loci/serve/generation/long_prompt.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

std::size_t kept_tokens(const PreparedGeneration& prepared) {
  std::size_t tokens = 0;
  for (std::size_t prompt = 0; prompt < prepared.prompts.size(); ++prompt)
    tokens += kept_tokens(prepared, prompt);
  return tokens;
}

std::string prompt_field(std::string_view name, std::size_t prompt, std::size_t prompts) {
  return prompts == 1 ? std::string(name) : fmt::format("{}[{}]", name, prompt);
}

std::optional<ApiError> check_model(const std::string& name, const ServedModel& served) {
  const std::vector<std::string>& aliases = served.aliases;
  if (name.empty() || name == served.model->id || name == "default" || served.any_name ||
      std::find(aliases.begin(), aliases.end(), name) != aliases.end()) {
    return std::nullopt;
  }
  ApiError error =
      http_error(404,
                 fmt::format("model: '{}' is not served here; this server has '{}' (option alias gives it "
                             "other names, and option any_model \"on\" takes any name)",
                             utf8_prefix(name, 200), served.model->id),
                 "model_not_found");
  error.param = "model";
  return error;
}

namespace {

bool truncates(std::optional<ContextOverflow> wish, const ServedModel& served) {
  return wish.value_or(served.overflow.overflow) == ContextOverflow::kTruncate;
}

// Cuts the prompts that do not fit, where that is wanted.
std::optional<ApiError> fit_prompts(PreparedGeneration& out, const ServedModel& served,
                                    std::string_view name) {
  const bool cuts = truncates(out.overflow, served);
  out.dropped.assign(out.prompts.size(), {});
  for (std::size_t i = 0; i < out.prompts.size(); ++i) {
    const std::size_t tokens = out.prompts[i].size();
    if (cuts && tokens > uncut_tokens(served.overflow.truncation) && tokens <= UINT32_MAX) {
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
      const std::string field = prompt_field(name, i, out.prompts.size());
      return context_length_error(tokens, served.context_tokens, field);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> refuse_long_prompt(std::span<const std::string_view> texts, ControlText control,
                                           std::optional<ContextOverflow> overflow, const ServedModel& served,
                                           std::string_view field) {
  if (truncates(overflow, served)) return std::nullopt;
  const Result<std::optional<std::size_t>> beyond =
      tokens_beyond(served.model->tokenizer, texts, control, served.context_tokens);
  if (!beyond.ok()) return api_error(beyond.status());
  if (!*beyond) return std::nullopt;
  return context_length_error(**beyond, served.context_tokens, std::string(field), false);
}

namespace {

// Compiles for one tenant, and within it for those with the same salt.
class Grammars {
 public:
  Grammars(const ServedModel& served, std::string_view tenant, std::string_view salt)
      : compiler_(*served.model->grammars),
        owner_{.tenant = std::string(tenant), .salt = std::string(salt)} {}
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSource& source) const {
    return compiler_.compile(source, owner_);
  }

 private:
  GrammarCompiler& compiler_;
  GrammarOwner owner_;
};

}  // namespace

Prepared check_generation(PreparedGeneration out, const ServedModel& served, std::string_view tenant,
                          std::string_view name) {
  GenerationFields& fields = out.fields;
  if (auto error = check_model(fields.model, served)) return *std::move(error);
  const std::uint32_t vocabulary = served.model->spec.vocabulary;
  if (Status status = validate_sampling(fields.sampling, vocabulary); !status.ok()) return api_error(status);
  if (Status status = check_tokens(fields.stop_token_ids, vocabulary, "stop_token_ids"); !status.ok()) {
    return api_error(status);
  }
  for (std::size_t i = 0; i < out.prompts.size(); ++i) {
    const std::string field = prompt_field(name, i, out.prompts.size());
    if (Status status = check_tokens(out.prompts[i], vocabulary, field); !status.ok())
      return api_error(status);
    if (out.prompts[i].empty())
      return api_error(invalid_argument("expected at least one token; got none", field));
  }
  if (auto error = fit_prompts(out, served, name)) return *std::move(error);
  if (fields.constraint && out.grammar == nullptr) {
    Result<std::shared_ptr<const Grammar>> grammar =
        Grammars(served, tenant, fields.cache_salt).compile(fields.constraint->source);
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

// The text begins with reasoning that it does not end.
bool leaves_reasoning_open(const OutputSyntax& syntax, std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \n\r\t")));
  return !syntax.reasoning_open.empty() && text.starts_with(syntax.reasoning_open) &&
         text.find(syntax.reasoning_close) == std::string_view::npos;
}

void set_parser(const ToolUse& use, ReasoningPlace reasoning, const std::optional<std::string>& continued,
                const ServedModel& served, PreparedGeneration& out) {
  const OutputSyntax& syntax = served.chat.output;
  if (!use.any() && !syntax.always_parsed()) return;
  OutputParserOptions options;
  options.reasoning = reasoning;
  const bool has_begun = continued && !continued->empty();
  options.begins_in_reasoning = has_begun
                                    ? leaves_reasoning_open(syntax, *continued)
                                    : opens_reasoning(syntax, served.model->tokenizer, out.prompts.front());
  // Behind an empty text all may come that begins a reply. Not in harmony, whose channel is chosen then.
  options.continues = has_begun || (continued && syntax.harmony());
  if (use.any()) {
    for (const Tool& tool : use.tools) {
      if (use.may_call(tool.name)) options.tool_names.push_back(tool.name);
    }
    if (!use.allowed.empty()) options.other_tools = OtherTools::kText;
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

constexpr std::size_t kSchemasTriedMax =
    64 << 10;  // bytes of one request's schemas that are compiled by themselves

// The tools that may be called, with what a grammar can hold their arguments to. A schema that no grammar
// knows is refused where the tool is strict; else the tool's arguments are any object then, as with OpenAI.
Result<ToolUse> with_known_schemas(ToolUse use, const Grammars& grammars) {
  std::size_t bytes = 0;
  for (Tool& tool : use.tools) {
    if (!use.may_call(tool.name)) continue;
    const GrammarSource schema{.kind = GrammarKind::kJsonSchema, .text = arguments_schema(tool)};
    bytes += schema.text.size();
    if (bytes > kSchemasTriedMax) break;
    const Status status = grammars.compile(schema).status();
    if (status.ok()) continue;
    if (tool.strict)
      return invalid_argument(fmt::format("'{}': its schema: {}", tool.name, status.message()), "tools");
    tool.function["parameters"] = {{"type", "object"}};
  }
  return use;
}

// The content's constraint, framed by the calls that the reply may be instead.
Result<std::shared_ptr<const Grammar>> compile_framed(const ConstraintSpec& constraint, std::string frame,
                                                      const ToolUse& use, const Grammars& grammars) {
  GrammarSource source = constraint.source;
  source.frame = std::move(frame);
  Result<std::shared_ptr<const Grammar>> grammar = grammars.compile(source);
  if (grammar.ok()) return grammar;
  // Which of the two is at fault.
  const Status alone = grammars.compile(constraint.source).status();
  if (!alone.ok()) return invalid_argument(alone.message(), constraint.field);
  LOCI_RETURN_IF_ERROR(with_known_schemas(use, grammars).status());
  return invalid_argument(
      fmt::format("beside {}: {}", constraint.field, std::string(grammar.status().message())), "tools");
}

// What a reply is held to that must call, that calls or has constrained content, or that may not call all
// tools. The prompt is there, and the parser's options.
Status set_grammar(const ToolUse& use, const std::optional<std::string>& continued, const ServedModel& served,
                   const Grammars& grammars, PreparedGeneration& out) {
  const Tokenizer& tokenizer = served.model->tokenizer;
  const auto control = [&](std::string_view text) -> std::optional<TokenId> {
    const std::optional<TokenId> token = tokenizer.find(text);
    return token && tokenizer.is_control(*token) ? token : std::nullopt;
  };
  const bool in_reasoning = out.parser && out.parser->begins_in_reasoning;
  const std::optional<ConstraintSpec>& constraint = out.fields.constraint;
  // A message that goes on has begun with content.
  if (constraint && use.any() && !use.must_call() && !continued) {
    LOCI_ASSIGN_OR_RETURN(std::string frame, calls_or_content_frame(use, *constraint, served.chat.output,
                                                                    control, in_reasoning));
    LOCI_ASSIGN_OR_RETURN(out.grammar, compile_framed(*constraint, std::move(frame), use, grammars));
    out.parser->calls = CallPlace::kInsteadOfText;
    return {};
  }
  const auto compile = [&](const ToolUse& tools) -> Result<std::shared_ptr<const Grammar>> {
    LOCI_ASSIGN_OR_RETURN(std::optional<std::string> text,
                          tool_grammar(tools, served.chat.output, control, in_reasoning));
    if (!text && !constraint && !continued)
      text = allowed_calls_grammar(tools, served.chat.output, control, in_reasoning);
    if (!text) return std::shared_ptr<const Grammar>();
    auto grammar = grammars.compile({.kind = GrammarKind::kLark, .text = *text});
    if (!grammar.ok()) return invalid_argument("their schemas: " + grammar.status().message(), "tools");
    return grammar;
  };
  auto grammar = compile(use);
  if (!grammar.ok()) {
    LOCI_ASSIGN_OR_RETURN(const ToolUse known, with_known_schemas(use, grammars));
    grammar = compile(known);
  }
  if (!grammar.ok()) return grammar.status();
  out.grammar = std::move(*grammar);
  return {};
}

}  // namespace

namespace {

struct RenderedConversation {
  std::string context;
  std::optional<std::string> continued;
  std::vector<ChatSegment> segments;
};

Status of_field(const Status& status, std::string_view field) {
  return {status.code(), status.message(), std::string(field)};
}

Result<RenderedConversation> render_request(Conversation conversation, std::string_view field,
                                            const ServedModel& served) {
  LOCI_RETURN_IF_ERROR(check_conversation(conversation, field));
  RenderedConversation out;
  if (conversation.continue_final_message) {
    out.continued = conversation.messages.back().content;
    mark_final_message(conversation);
  }
  out.context = make_template_context(std::move(conversation), served.chat);
  Result<std::vector<ChatSegment>> segments = render_conversation(*served.model, out.context);
  if (!segments.ok()) return of_field(segments.status(), field);
  out.segments = std::move(*segments);
  if (out.continued) {
    if (const Status cut = cut_at_mark(*out.continued, out.segments); !cut.ok()) return of_field(cut, field);
  }
  return out;
}

Result<EncodedConversation> encode(RenderedConversation rendered, std::string_view field,
                                   const ServedModel& served, TokenHistory& history,
                                   std::string_view tenant) {
  Result<HistoryTokens> tokens = history.encode(served.model->tokenizer, tenant, rendered.segments);
  if (!tokens.ok()) return of_field(tokens.status(), field);
  return EncodedConversation{.tokens = std::move(tokens->tokens),
                             .context = std::move(rendered.context),
                             .continued = std::move(rendered.continued)};
}

}  // namespace

Result<EncodedConversation> encode_conversation(Conversation conversation, std::string_view field,
                                                const ServedModel& served, TokenHistory& history,
                                                std::string_view tenant) {
  LOCI_ASSIGN_OR_RETURN(RenderedConversation rendered,
                        render_request(std::move(conversation), field, served));
  return encode(std::move(rendered), field, served, history, tenant);
}

Prepared prepare_chat(ChatRequest request, std::string_view field, const ServedModel& served,
                      TokenHistory& history, std::string_view tenant,
                      std::optional<ContextOverflow> overflow) {
  const ToolUse tools = request.conversation.tools;
  Result<RenderedConversation> rendered = render_request(std::move(request.conversation), field, served);
  if (!rendered.ok()) return api_error(rendered.status());
  std::vector<std::string_view> texts;
  for (const ChatSegment& segment : rendered->segments) texts.emplace_back(segment.text);
  if (auto error = refuse_long_prompt(texts, ControlText::kAsText, overflow, served, field))
    return *std::move(error);
  Result<EncodedConversation> prompt = encode(*std::move(rendered), field, served, history, tenant);
  if (!prompt.ok()) return api_error(prompt.status());
  PreparedGeneration out;
  out.overflow = overflow;
  if (truncates(overflow, served) && prompt->tokens.size() > uncut_tokens(served.overflow.truncation)) {
    out.front_tokens = system_prompt_tokens(*served.model->chat_template, prompt->context, prompt->tokens);
  }
  out.fields = std::move(request.fields);
  out.fields.ignored.insert(out.fields.ignored.end(), tools.left_out.begin(), tools.left_out.end());
  out.unknown_fields = std::move(request.unknown_fields);
  out.prompts.push_back(std::move(prompt->tokens));
  set_parser(tools, request.reasoning, prompt->continued, served, out);
  forbid_calls(tools, served, out);
  const Grammars grammars(served, tenant, out.fields.cache_salt);
  if (Status status = set_grammar(tools, prompt->continued, served, grammars, out); !status.ok())
    return api_error(status);
  // What a constraint alone writes begins with its first word, and is text.
  if (out.fields.constraint && !out.grammar) out.parser.reset();
  return check_generation(std::move(out), served, tenant, field);
}

}  // namespace loci
