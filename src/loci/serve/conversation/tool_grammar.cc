// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/tool_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "loci/base/check.h"
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
      if (!plain.empty()) out += " " + dump_json(Json(plain));
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

  // The mark with which `text` begins; empty: it begins with none.
  std::string mark_of(std::string_view text) const {
    const auto mark =
        std::ranges::find_if(marks_, [&](const std::string& one) { return text.starts_with(one); });
    return mark == marks_.end() ? std::string() : *mark;
  }

  bool is_control(const std::string& mark) const { return !mark.empty() && control_(mark).has_value(); }

  bool begins_with_control(std::string_view text) const { return is_control(mark_of(text)); }

  // A text that ends with `close`: a rule `name`.
  std::string up_to(std::string_view name, const std::string& close) const {
    if (control_(close)) return fmt::format("{}: /(.|\\n)*/ {}\n", name, literal(close));
    return fmt::format("{}[suffix={}]: /(.|\\n)*/\n", name, dump_json(Json(close)));
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

// As response_format has it: else a small model can fill the rest of its reply with line ends.
constexpr const char* kLarkBlanks = "[\\x20\\x0A\\x0D\\x09]{1,20}";

std::string schema_text(Json schema) {
  if (!schema.contains("x-guidance")) schema["x-guidance"] = {{"whitespace_pattern", kLarkBlanks}};
  return dump_json(schema);
}

struct Rules {
  std::string start;  // what the reply is
  std::string others;
};

// Reasoning, where the family marks it.
void add_reasoning(const OutputSyntax& syntax, const GrammarText& text, bool in_reasoning, Rules& out) {
  if (syntax.harmony()) {
    out.start += " analysis?";
    out.others += "analysis:" + text.literal("<|channel|>analysis<|message|>") + " analysis_text" +
                  text.literal("<|start|>assistant") + "\n" + text.up_to("analysis_text", "<|end|>");
  } else if (!syntax.reasoning_open.empty()) {
    out.start += in_reasoning ? " thought /[ \\n]{0,4}/" : " (thinking /[ \\n]{0,4}/)?";
    if (!in_reasoning) out.others += "thinking:" + text.literal(syntax.reasoning_open) + " thought\n";
    out.others += text.up_to("thought", syntax.reasoning_close);
  }
}

// One call or several, of which `rules` has one for each tool, "call_0", "call_1" ...
std::string calls_of(const ToolUse& use, const Notation& notation, const GrammarText& text) {
  std::string calls = text.literal(notation.open) + " call";
  if (!use.one_call() && notation.several)
    calls += fmt::format(" ({} call){{0,{}}}", text.literal(notation.separator), kForcedCallsMax - 1);
  return calls + text.literal(notation.close);
}

// A call that is bare JSON, made of the words that a schema's JSON is made of: the text goes on as a call, as
// content or as both.
std::string json_call(const Tool& tool, std::string_view arguments_key, std::size_t number) {
  const auto word = [](std::string_view text) { return dump_json(Json(dump_json(Json(text)))); };
  return fmt::format(R"( "{{" {} ":" {} "," {} ":" arguments_{} "}}")", word("name"), word(tool.name),
                     word(arguments_key), number);
}

// Its blanks are those between the words of the content.
std::string json_blanks() {
  return fmt::format("%ignore /{}/\n%llguidance {{\"ignore_once\": true}}\n", kLarkBlanks);
}

// The words of a text, and what calls begin with behind them: rules `words` and `before_calls`. Of a mark
// that is text a lazy word makes a call as soon as it is there, wherever in the text.
void add_words(const OutputSyntax& syntax, const GrammarText& text, const std::string& mark,
               bool in_reasoning, Rules& out) {
  out.others += "WORDS: /(.|\\n)*/";
  // What begins as reasoning does is not text.
  const std::string& opens = syntax.reasoning_open;
  if (!in_reasoning && !opens.empty() && !text.is_control(opens))
    out.others += fmt::format(" & ~({} /(.|\\n)*/)", dump_json(Json(opens)));
  out.others += "\n";
  if (!text.is_control(mark)) {
    out.others += fmt::format("words: WORDS\nbefore_calls[lazy]: WORDS {}\n", dump_json(Json(mark)));
    return;
  }
  std::string ignored;
  for (const std::string& one : syntax.ignored) {
    if (text.is_control(one)) ignored += (ignored.empty() ? "" : " |") + text.literal(one);
  }
  out.others +=
      ignored.empty() ? "words: WORDS\n" : "words: WORDS (ignored WORDS)*\nignored:" + ignored + "\n";
  out.others += "before_calls: words" + text.literal(mark) + "\n";
}

bool is_json(GrammarKind kind) {
  return kind == GrammarKind::kJsonSchema || kind == GrammarKind::kJsonObject;
}

}  // namespace

std::string arguments_schema(const Tool& tool) {
  Json schema = tool.parameters();
  if (!schema.contains("type")) schema["type"] = "object";
  close_objects(schema);
  return schema_text(std::move(schema));
}

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
  Rules rules;
  std::string calls;
  for (std::size_t i = 0; i < use.tools.size(); ++i) {
    const Tool& tool = use.tools[i];
    if (!use.may_call(tool.name)) continue;
    calls += fmt::format("{}call_{}", calls.empty() ? "" : " | ", i);
    rules.others += fmt::format("call_{}:{}\n", i, text.call(notation->call, tool, i));
    rules.others += fmt::format("arguments_{}: %json {}\n", i, arguments_schema(tool));
  }
  add_reasoning(syntax, text, in_reasoning, rules);
  return std::optional<std::string>("start:" + rules.start + calls_of(use, *notation, text) +
                                    "\ncall: " + calls + "\n" + rules.others);
}

std::optional<std::string> allowed_calls_grammar(const ToolUse& use, const OutputSyntax& syntax,
                                                 const ControlToken& control_token, bool in_reasoning) {
  std::optional<Notation> notation = notation_of(syntax);
  if (use.allowed.empty() || !notation || syntax.bare_calls()) return std::nullopt;
  const GrammarText text(syntax, control_token);
  Rules rules;
  add_reasoning(syntax, text, in_reasoning, rules);
  if (syntax.harmony()) {
    // A message that says what the calls are for may stand before them.
    rules.start += " preamble* (" + calls_of(use, *notation, text) + " | final )";
    rules.others += "preamble:" + text.literal("<|channel|>commentary<|message|>") + " preamble_text" +
                    text.literal("<|start|>assistant") + "\n" + text.up_to("preamble_text", "<|end|>") +
                    "final:" + text.literal("<|channel|>final<|message|>") + " WORDS\nWORDS: /(.|\\n)*/\n";
  } else {
    // The mark with which calls begin stands behind the text before them; each call has one, or all together.
    std::string& begin = notation->open.empty() ? notation->call : notation->open;
    const std::string mark = text.mark_of(begin);
    LOCI_CHECK(!mark.empty(), "calls that are no bare JSON begin with a mark");
    begin.erase(0, mark.size());
    notation->several = !notation->open.empty() && notation->several;
    rules.start += " (before_calls" + calls_of(use, *notation, text) + ")* words";
    add_words(syntax, text, mark, in_reasoning, rules);
  }
  std::string calls;
  for (std::size_t i = 0; i < use.tools.size(); ++i) {
    if (!use.may_call(use.tools[i].name)) continue;
    calls += fmt::format("{}call_{}", calls.empty() ? "" : " | ", i);
    rules.others += fmt::format("call_{}:{}\n", i, text.call(notation->call, use.tools[i], 0));
  }
  rules.others += "arguments_0: %json " + schema_text({{"type", "object"}}) + "\n";
  return "start:" + rules.start + "\ncall: " + calls + "\n" + rules.others;
}

Result<std::string> calls_or_content_frame(const ToolUse& use, const ConstraintSpec& constraint,
                                           const OutputSyntax& syntax, const ControlToken& control_token,
                                           bool in_reasoning) {
  std::optional<Notation> notation = notation_of(syntax);
  if (!notation) {
    return invalid_argument(
        fmt::format("can't be combined with tools for this model, whose calls ({}) are no "
                    "JSON; leave one of the two out, or give tool_choice none",
                    dialect_name(syntax.dialect)),
        constraint.field);
  }
  const GrammarText text(syntax, control_token);
  const bool marked =
      text.begins_with_control(notation->open + notation->call) &&
      (in_reasoning || syntax.reasoning_open.empty() || text.begins_with_control(syntax.reasoning_open));
  if (!is_json(constraint.source.kind) && !marked) {
    return invalid_argument(
        fmt::format(
            "can't be combined with tools for this model, whose calls ({}) begin as text does; give a "
            "JSON schema, or leave one of the two out, or give tool_choice none",
            dialect_name(syntax.dialect)),
        constraint.field);
  }
  Rules rules;
  std::string calls;
  for (std::size_t i = 0; i < use.tools.size(); ++i) {
    const Tool& tool = use.tools[i];
    if (!use.may_call(tool.name)) continue;
    const std::string schema = tool.strict ? arguments_schema(tool) : schema_text({{"type", "object"}});
    calls += fmt::format("{}call_{}", calls.empty() ? "" : " | ", i);
    const char* const key = syntax.dialect == ToolDialect::kGeneric ? "arguments" : "parameters";
    rules.others +=
        fmt::format("call_{}:{}\n", i,
                    syntax.bare_calls() ? json_call(tool, key, i) : text.call(notation->call, tool, i));
    rules.others += fmt::format("arguments_{}: %json {}\n", i, schema);
  }
  if (syntax.bare_calls()) {
    notation->separator.clear();  // blanks, as between all words
    rules.others += json_blanks();
  }
  add_reasoning(syntax, text, in_reasoning, rules);
  const std::string before = syntax.harmony() ? text.literal("<|channel|>final<|message|>") : "";
  return "start:" + rules.start + " (" + calls_of(use, *notation, text) + " |" + before +
         " content )\ncall: " + calls + "\n" + rules.others;
}

}  // namespace loci
