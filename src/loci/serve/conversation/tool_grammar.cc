// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/tool_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "loci/serve/wire/json.h"

namespace loci {
namespace {

using ControlToken = std::function<std::optional<TokenId>(std::string_view)>;

// One call's text with places for what varies, and what stands around and between calls.
struct Notation {
  std::string open;
  std::string call;
  std::string separator;
  std::string close;
  bool several = true;
};

// The places in Notation::call.
constexpr char kName = '\1';
constexpr char kArguments = '\2';
constexpr char kNumber = '\3';
constexpr char kShortIdMark = '\4';  // nine letters and digits

std::optional<Notation> notation_of(const OutputSyntax& syntax) {
  static const std::string kJsonCall = "{\"name\": \"\1\", \"arguments\": \2}";
  switch (syntax.dialect) {
    case ToolDialect::kGeneric: return Notation{"", kJsonCall, "\n", ""};
    case ToolDialect::kBareJson: return Notation{"", "{\"name\": \"\1\", \"parameters\": \2}", "", "", false};
    case ToolDialect::kHermes: return Notation{"", "<tool_call>\n" + kJsonCall + "\n</tool_call>", "\n", ""};
    case ToolDialect::kMistral:
      if (syntax.call_ids) return Notation{"", "[TOOL_CALLS]\1[CALL_ID]\4[ARGS]\2", "", ""};
      if (syntax.later_form) return Notation{"", "[TOOL_CALLS]\1[ARGS]\2", "", ""};
      return Notation{"[TOOL_CALLS][", "{\"name\": \"\1\", \"arguments\": \2, \"id\": \"\4\"}", ", ", "]"};
    case ToolDialect::kHarmony:
      return Notation{"", "<|channel|>commentary to=functions.\1 <|constrain|>json<|message|>\2", "", "",
                      false};
    case ToolDialect::kDeepSeek:
      return Notation{
          "<｜tool▁calls▁begin｜>",
          syntax.later_form
              ? "<｜tool▁call▁begin｜>\1<｜tool▁sep｜>\2<｜tool▁call▁end｜>"
              : "<｜tool▁call▁begin｜>function<｜tool▁sep｜>\1\n```json\n\2\n```<｜tool▁call▁end｜>",
          syntax.later_form ? "" : "\n", "<｜tool▁calls▁end｜>"};
    case ToolDialect::kPhi4: return Notation{"<|tool_call|>[", kJsonCall, ", ", "]<|/tool_call|>"};
    case ToolDialect::kGranite: return Notation{"<|tool_call|>[", kJsonCall, ", ", "]"};
    case ToolDialect::kCommandR7b:
      return Notation{"<|START_ACTION|>[\n",
                      "    {\"tool_call_id\": \"\3\", \"tool_name\": \"\1\", \"parameters\": \2}", ",\n",
                      "\n]<|END_ACTION|>"};
    case ToolDialect::kCommandR:
      return Notation{"Action: ```json\n[\n",
                      "    {\n        \"tool_name\": \"\1\",\n        \"parameters\": \2\n    }", ",\n",
                      "\n]```"};
    case ToolDialect::kFunctionary: return Notation{"", "<function=\1>\2</function>", "", ""};
    case ToolDialect::kKimi:
      return Notation{"<|tool_calls_section_begin|>",
                      "<|tool_call_begin|>functions.\1:\3<|tool_call_argument_begin|>\2<|tool_call_end|>", "",
                      "<|tool_calls_section_end|>"};
    case ToolDialect::kQwenXml:
    case ToolDialect::kGemma4: return std::nullopt;
  }
  return std::nullopt;
}

class GrammarText {
 public:
  GrammarText(const OutputSyntax& syntax, const ControlToken& control) : control_(control) {
    marks_ = syntax.marks();
    for (const char* more : {"[CALL_ID]", "[ARGS]", "<｜tool▁sep｜>", "<|tool_call_argument_begin|>"})
      marks_.emplace_back(more);
  }

  // `text` as Lark: strings, and control tokens by their ids.
  std::string literal(std::string_view text) const {
    std::string out;
    std::string plain;
    const auto flush = [&] {
      if (!plain.empty()) out += " " + Json(plain).dump();
      plain.clear();
    };
    while (!text.empty()) {
      const auto mark = std::find_if(marks_.begin(), marks_.end(),
                                     [&](const std::string& one) { return text.starts_with(one); });
      const std::optional<TokenId> token = mark == marks_.end() ? std::nullopt : control_(*mark);
      if (token) {
        flush();
        out += fmt::format(" <[{}]>", token->value);
        text.remove_prefix(mark->size());
      } else {
        plain += text.front();
        text.remove_prefix(1);
      }
    }
    flush();
    return out;
  }

  std::string call(const std::string& notation, const Tool& tool, std::size_t number) const {
    std::string out;
    std::string plain;
    for (const char c : notation) {
      if (c == kName) {
        plain += tool.name;
      } else if (c == kArguments || c == kNumber || c == kShortIdMark) {
        out += literal(std::exchange(plain, {}));
        out += c == kArguments ? fmt::format(" arguments_{}", number)
                               : (c == kNumber ? " /[0-9]{1,3}/" : " /[a-zA-Z0-9]{9}/");
      } else {
        plain += c;
      }
    }
    return out + literal(plain);
  }

  // A text that ends with `close`: a rule `name`.
  std::string up_to(std::string_view name, const std::string& close) const {
    if (control_(close)) return fmt::format("{}: /(.|\\n)*/ {}\n", name, literal(close));
    return fmt::format("{}[suffix={}]: /(.|\\n)*/\n", name, Json(close).dump());
  }

 private:
  const ControlToken& control_;
  std::vector<std::string> marks_;
};

// An object has the properties that are declared and no others, unless it says so: a model that is held to a
// schema fills in what it was never asked for. Not where several schemas hold at once, as each would forbid
// what the others declare.
void close_objects(Json& schema) {
  if (!schema.is_object()) return;
  for (const char* several : {"allOf", "$ref", "if", "dependentSchemas"}) {
    if (schema.contains(several)) return;
  }
  for (const char* named : {"properties", "$defs", "definitions"}) {
    if (!schema.contains(named) || !schema[named].is_object()) continue;
    for (auto& [name, inner] : schema[named].items()) close_objects(inner);
  }
  if (schema.contains("items")) close_objects(schema["items"]);
  bool either = false;
  for (const char* choice : {"anyOf", "oneOf"}) {
    if (!schema.contains(choice) || !schema[choice].is_array()) continue;
    either = true;
    if (schema.contains("properties")) continue;  // what holds beside them would be forbidden
    for (Json& inner : schema[choice]) close_objects(inner);
  }
  const bool declares = schema.contains("properties") && !either;
  const bool open = schema.contains("additionalProperties") || schema.contains("patternProperties") ||
                    schema.contains("unevaluatedProperties");
  if (declares && !open) schema["additionalProperties"] = false;
}

std::string arguments_schema(const Tool& tool) {
  Json schema = tool.parameters();
  if (!schema.contains("type")) schema["type"] = "object";
  close_objects(schema);
  // As response_format has it: else a small model can fill the rest of its reply with line ends.
  if (!schema.contains("x-guidance"))
    schema["x-guidance"] = {{"whitespace_pattern", "[\\x20\\x0A\\x0D\\x09]{1,20}"}};
  return schema.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Result<std::optional<std::string>> tool_grammar(const ToolUse& use, const OutputSyntax& syntax,
                                                const ControlToken& control_token, bool in_reasoning) {
  if (!use.must_call()) return std::optional<std::string>();
  const std::optional<Notation> notation = notation_of(syntax);
  if (!notation) {
    return invalid_argument(
        fmt::format(
            "is not supported for this model, whose calls ({}) are no JSON; leave it out or give auto",
            dialect_name(syntax.dialect)),
        "tool_choice");
  }
  const GrammarText text(syntax, control_token);
  std::string rules;
  std::string calls;
  for (std::size_t i = 0; i < use.tools.size(); ++i) {
    const Tool& tool = use.tools[i];
    if (use.choice == ToolChoice::kNamed && tool.name != use.named) continue;
    calls += fmt::format("{}call_{}", calls.empty() ? "" : " | ", i);
    rules += fmt::format("call_{}:{}\n", i, text.call(notation->call, tool, i));
    rules += fmt::format("arguments_{}: %json {}\n", i, arguments_schema(tool));
  }
  std::string start = "start:";
  if (syntax.harmony()) {
    start += " analysis?";
    rules += "analysis:" + text.literal("<|channel|>analysis<|message|>") + " analysis_text" +
             text.literal("<|start|>assistant") + "\n" + text.up_to("analysis_text", "<|end|>");
  } else if (!syntax.reasoning_open.empty()) {
    start += in_reasoning ? " thought /[ \\n]{0,4}/" : " (thinking /[ \\n]{0,4}/)?";
    if (!in_reasoning) rules += "thinking:" + text.literal(syntax.reasoning_open) + " thought\n";
    rules += text.up_to("thought", syntax.reasoning_close);
  }
  start += text.literal(notation->open) + " call";
  if (!use.one_call() && notation->several)
    start += fmt::format(" ({} call){{0,{}}}", text.literal(notation->separator), kForcedCallsMax - 1);
  start += text.literal(notation->close) + "\n";
  return std::optional<std::string>(start + "call: " + calls + "\n" + rules);
}

}  // namespace loci
