// SPDX-License-Identifier: Apache-2.0
// Whatever the grammar of a forced call lets a model write is read back as calls that match their schemas.
#include "loci/serve/conversation/tool_grammar.h"
#include "loci/serve/wire/json.h"

#include <gtest/gtest.h>

#include "loci/base/random.h"
#include "loci/model/grammar.h"
#include "loci/model/text_testing.h"
#include "loci/serve/conversation/output_parser.h"

namespace loci {
namespace {

const char* const kTools = R"([
  {"type": "function", "function": {"name": "set", "parameters": {"type": "object", "properties": {
    "level": {"type": "integer", "minimum": 0, "maximum": 9}, "mode": {"enum": ["on", "o\"ff"]}},
    "required": ["level", "mode"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "stop", "strict": true, "parameters": {"properties": {
    "now": {"type": "boolean"}}, "required": ["now"], "additionalProperties": false}}}])";

struct Dialect {
  const char* source;
  std::vector<std::string> control;
  std::string begin;  // what the model writes before it is left to chance
  bool in_reasoning = false;
};

const std::vector<Dialect> kDialects = {
    {"{{ messages }}", {}, ""},
    {"{{ tools }}<|python_tag|>", {"<|python_tag|>"}, ""},
    {"{{ tools }}<tool_call>", {}, ""},
    {"{{ tools }}<tool_call>", {"<tool_call>", "</tool_call>"}, ""},
    {"{{ tools }}<tool_call><think>", {}, "<think>\nHm.\n</think>\n\n"},
    {"{{ tools }}<tool_call><think>", {"<think>", "</think>"}, "Hm.</think>", true},
    {"{{ tools }}[TOOL_CALLS]", {"[TOOL_CALLS]"}, ""},
    {"{{ tools }}[TOOL_CALLS][ARGS]", {"[TOOL_CALLS]", "[ARGS]"}, ""},
    {"{{ tools }}[TOOL_CALLS][CALL_ID][ARGS]", {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"}, ""},
    {"{{ tools }}<|start|><|channel|><|message|>",
     {"<|start|>", "<|end|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|call|>"},
     "<|channel|>analysis<|message|>Hm.<|end|>"},
    {"{{ tools }}<｜tool▁calls▁begin｜>```json", {}, ""},
    {"{{ tools }}<｜tool▁calls▁begin｜>",
     {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
      "<｜tool▁calls▁end｜>"},
     ""},
    {"{{ tools }}<|tool|>", {"<|tool_call|>", "<|/tool_call|>"}, ""},
    {"{{ tools }}<|tool_call|>", {"<|tool_call|>"}, ""},
    {"{{ tools }}<|START_ACTION|>", {"<|START_ACTION|>", "<|END_ACTION|>"}, ""},
    {"{{ tools }}Action: ```json", {}, ""},
    {"{{ tools }}<function=", {}, ""},
    {"{{ tools }}<|tool_call_begin|>", {"<|tool_call_begin|>", "<|tool_call_end|>"}, ""},
};

// Of tools as chat completions have them, and "required" or the function that is named.
ToolUse use_of(const Json& tools, const Json& choice) {
  ToolUse use;
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    use.tools.push_back({.name = function["name"].get<std::string>(),
                         .function = function,
                         .strict = function.value("strict", false)});
  }
  use.choice = choice == "required" ? ToolChoice::kRequired : ToolChoice::kNamed;
  if (choice.is_object()) use.named = choice["function"]["name"].get<std::string>();
  return use;
}

class Walk {
 public:
  Walk(const Dialect& dialect, const Json& choice, bool parallel, std::vector<std::string> allowed = {})
      : syntax_(find_output_syntax(dialect.source, [](std::string_view) { return false; })),
        tokenizer_(tokenizer_from(byte_level_writer(dialect.control, {})).value()),
        compiler_(tokenizer_),
        dialect_(dialect) {
    use_ = use_of(Json::parse(kTools), choice);
    use_.parallel = parallel;
    use_.allowed = std::move(allowed);
    const auto control = [&](std::string_view text) -> std::optional<TokenId> {
      const auto token = tokenizer_.find(text);
      return token && tokenizer_.is_control(*token) ? token : std::nullopt;
    };
    const auto text = tool_grammar(use_, syntax_, control, dialect.in_reasoning);
    EXPECT_TRUE(text.ok() && *text) << dialect.source;
    auto grammar = compiler_.compile({.kind = GrammarKind::kLark, .text = **text});
    EXPECT_TRUE(grammar.ok()) << **text << "\n" << grammar.status().to_string();
    if (grammar.ok()) grammar_ = *grammar;
  }

  bool ready() const { return grammar_ != nullptr; }

  ModelOutput take(std::uint64_t seed) {
    Random random(seed);
    OutputParser parser(syntax_,
                        {.tool_names = {"set", "stop"}, .begins_in_reasoning = dialect_.in_reasoning});
    GrammarMatcher matcher = grammar_->matcher().value();
    std::vector<std::uint32_t> mask(grammar_->mask_words());
    const auto begin = tokenizer_.encode(dialect_.begin, ControlText::kAsControl);
    for (const TokenId token : *begin) {
      EXPECT_TRUE(matcher.mask(mask).ok());
      EXPECT_TRUE(mask_allows(mask, token)) << tokenizer_.token_bytes(token);
      EXPECT_TRUE(matcher.accept(token).ok());
      push(parser, token);
    }
    for (int step = 0; step < 4000; ++step) {
      const MatchState state = matcher.mask(mask).value();
      EXPECT_NE(state, MatchState::kStuck);
      if (state == MatchState::kComplete || (state == MatchState::kMayEnd && random.below(3) == 0)) break;
      std::vector<TokenId> allowed;
      for (std::uint32_t id = 0; id < tokenizer_.vocabulary_size(); ++id)
        if (mask_allows(mask, TokenId(id))) allowed.emplace_back(id);
      if (allowed.empty()) break;
      const TokenId token = allowed[random.below(allowed.size())];
      EXPECT_TRUE(matcher.accept(token).ok());
      push(parser, token);
    }
    parser.finish();
    ModelOutput output;
    output.append({.pieces = parser.take(), .logprobs = {}});
    return output;
  }

  // How many line ends the grammar allows after what the dialect begins with; at most 100 are tried.
  std::size_t blanks_allowed() {
    GrammarMatcher matcher = grammar_->matcher().value();
    std::vector<std::uint32_t> mask(grammar_->mask_words());
    const auto begin = tokenizer_.encode(dialect_.begin, ControlText::kAsControl);
    for (const TokenId token : *begin) {
      EXPECT_TRUE(matcher.mask(mask).ok());
      EXPECT_TRUE(matcher.accept(token).ok()) << tokenizer_.token_bytes(token);
    }
    const TokenId line_end = tokenizer_.encode("\n", ControlText::kAsText)->front();
    std::size_t count = 0;
    for (; count < 100; ++count) {
      EXPECT_TRUE(matcher.mask(mask).ok());
      if (!mask_allows(mask, line_end)) break;
      EXPECT_TRUE(matcher.accept(line_end).ok());
    }
    return count;
  }

  std::string written() { return std::exchange(written_, {}); }

 private:
  void push(OutputParser& parser, TokenId token) {
    const std::string bytes = tokenizer_.token_bytes(token);
    written_ += bytes;
    if (tokenizer_.is_control(token))
      parser.push_control(bytes);
    else
      parser.push(bytes);
  }

  OutputSyntax syntax_;
  Tokenizer tokenizer_;
  GrammarCompiler compiler_;
  const Dialect& dialect_;
  ToolUse use_;
  std::shared_ptr<const Grammar> grammar_;
  std::string written_;
};

void check(const ToolCall& call) {
  const Json arguments = Json::parse(call.arguments, nullptr, false);
  ASSERT_TRUE(arguments.is_object()) << call.arguments;
  if (call.name == "stop") {
    EXPECT_EQ(arguments.size(), 1u);
    EXPECT_TRUE(arguments["now"].is_boolean()) << call.arguments;
  } else {
    EXPECT_EQ(call.name, "set");
    EXPECT_EQ(arguments.size(), 2u);
    EXPECT_TRUE(arguments["level"].is_number_integer() && arguments["level"] <= 9) << call.arguments;
    EXPECT_TRUE(arguments["mode"] == "on" || arguments["mode"] == "o\"ff") << call.arguments;
  }
}

TEST(ToolGrammar, WhateverItAllowsIsReadAsCalls) {
  for (const Dialect& dialect : kDialects) {
    SCOPED_TRACE(dialect.source);
    Walk walk(dialect, "required", true);
    if (!walk.ready()) continue;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      const ModelOutput output = walk.take(seed);
      SCOPED_TRACE(walk.written());
      EXPECT_GE(output.tool_calls().size(), 1u);
      EXPECT_LE(output.tool_calls().size(), kForcedCallsMax);
      EXPECT_EQ(output.text(), "");
      EXPECT_EQ(output.reasoning(), dialect.begin.empty() ? "" : "Hm.");
      for (const ToolCall& call : output.tool_calls()) check(call);
    }
  }
}

TEST(ToolGrammar, OneCallAndTheNamedOne) {
  const Dialect& hermes = kDialects[2];
  Walk walk(hermes, {{"type", "function"}, {"function", {{"name", "stop"}}}}, false);
  ASSERT_TRUE(walk.ready());
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const ModelOutput output = walk.take(seed);
    ASSERT_EQ(output.tool_calls().size(), 1u);
    EXPECT_EQ(output.tool_calls()[0].name, "stop");
  }
}

TEST(ToolGrammar, ANamedToolIsCalledOnce) {
  for (const Dialect& dialect : kDialects) {
    SCOPED_TRACE(dialect.source);
    Walk walk(dialect, {{"type", "function"}, {"function", {{"name", "set"}}}}, true);
    ASSERT_TRUE(walk.ready());
    for (std::uint64_t seed = 0; seed < 4; ++seed) EXPECT_EQ(walk.take(seed).tool_calls().size(), 1u);
  }
}

// Else a model that likes line ends fills the rest of its reply with them.
TEST(ToolGrammar, BoundsTheBlanksInArguments) {
  const Dialect begun{kDialects[2].source, {}, "<tool_call>\n{\"name\": \"stop\", \"arguments\": {"};
  Walk walk(begun, "required", true);
  ASSERT_TRUE(walk.ready());
  EXPECT_LE(walk.blanks_allowed(), 20u);
}

TEST(ToolGrammar, RefusesWhatItCannotWrite) {
  const OutputSyntax gemma =
      find_output_syntax("{{ tools }}<|tool_call>", [](std::string_view) { return false; });
  const ToolUse use = use_of(Json::parse(kTools), "required");
  const auto none = [](std::string_view) -> std::optional<TokenId> { return std::nullopt; };
  EXPECT_EQ(tool_grammar(use, gemma, none, false).status().field(), "tool_choice");
  ToolUse free = use;
  free.choice = ToolChoice::kAuto;
  EXPECT_FALSE(tool_grammar(free, gemma, none, false)->has_value());
}

const char* const kContent =
    R"({"type": "object", "properties": {"name": {"type": "string"}, "mark": {"type": "string"}},
        "required": ["name", "mark"], "additionalProperties": false})";

// What a grammar lets a model of the dialect reply.
class Replies {
 public:
  Status status() const { return status_; }
  bool is_held() const { return grammar_ != nullptr; }
  bool harmony() const { return syntax_.harmony(); }

  // What `marked`, whose marks are control tokens where they are such, and `text` say; nothing where the
  // grammar does not allow them, or not as a whole.
  std::optional<ModelOutput> read(const std::string& marked, const std::string& text = {}) const {
    OutputParser parser(syntax_, options_);
    GrammarMatcher matcher = grammar_->matcher().value();
    std::vector<std::uint32_t> mask(grammar_->mask_words());
    MatchState state = MatchState::kOpen;
    std::vector<TokenId> tokens = tokenizer_.encode(marked, ControlText::kAsControl).value();
    const std::vector<TokenId> more = tokenizer_.encode(text, ControlText::kAsText).value();
    tokens.insert(tokens.end(), more.begin(), more.end());
    for (const TokenId token : tokens) {
      if (!matcher.mask(mask).ok() || !mask_allows(mask, token)) return std::nullopt;
      state = matcher.accept(token).value();
      const std::string bytes = tokenizer_.token_bytes(token);
      if (tokenizer_.is_control(token))
        parser.push_control(bytes);
      else
        parser.push(bytes);
    }
    if (state != MatchState::kComplete && state != MatchState::kMayEnd) return std::nullopt;
    parser.finish();
    ModelOutput output;
    output.append({.pieces = parser.take(), .logprobs = {}});
    return output;
  }

  // What a model might write behind `begin`, as text.
  std::string draw(const std::string& begin, std::uint64_t seed) const {
    Random random(seed);
    GrammarMatcher matcher = grammar_->matcher().value();
    std::vector<std::uint32_t> mask(grammar_->mask_words());
    const std::vector<TokenId> begun = tokenizer_.encode(begin, ControlText::kAsControl).value();
    std::string text;
    for (std::size_t step = 0; step < 4000; ++step) {
      const MatchState state = matcher.mask(mask).value();
      const bool may_end = state == MatchState::kMayEnd && step >= begun.size();
      if (state == MatchState::kComplete || (may_end && random.below(3) == 0)) break;
      std::vector<TokenId> allowed;
      for (std::uint32_t id = 0; id < tokenizer_.vocabulary_size(); ++id)
        if (mask_allows(mask, TokenId(id))) allowed.emplace_back(id);
      const TokenId token = step < begun.size() ? begun[step] : allowed.at(random.below(allowed.size()));
      EXPECT_TRUE(matcher.accept(token).ok());
      text += tokenizer_.token_bytes(token);
    }
    return text;
  }

 protected:
  Replies(const Dialect& dialect, OutputParserOptions options)
      : syntax_(find_output_syntax(dialect.source, [](std::string_view) { return false; })),
        tokenizer_(tokenizer_from(byte_level_writer(dialect.control, {})).value()),
        compiler_(tokenizer_),
        options_(std::move(options)) {
    options_.begins_in_reasoning = dialect.in_reasoning;
  }

  auto control() const {
    return [this](std::string_view text) -> std::optional<TokenId> {
      const auto token = tokenizer_.find(text);
      return token && tokenizer_.is_control(*token) ? token : std::nullopt;
    };
  }

  void compile(const GrammarSource& source) {
    auto grammar = compiler_.compile(source);
    status_ = grammar.status();
    EXPECT_TRUE(grammar.ok()) << source.text << "\n" << source.frame << "\n" << status_.to_string();
    if (grammar.ok()) grammar_ = *grammar;
  }

  OutputSyntax syntax_;
  Tokenizer tokenizer_;
  GrammarCompiler compiler_;
  OutputParserOptions options_;
  Status status_;
  std::shared_ptr<const Grammar> grammar_;
};

// A reply that may call the tools, or is content of the constraint.
class Either : public Replies {
 public:
  Either(const Dialect& dialect, GrammarSource content, const Json& tools = Json::parse(kTools))
      : Replies(dialect, {.tool_names = {"set", "stop"}, .calls = CallPlace::kInsteadOfText}) {
    ToolUse use = use_of(tools, "required");
    use.choice = ToolChoice::kAuto;
    const auto frame = calls_or_content_frame(use, {.source = content, .field = "response_format"}, syntax_,
                                              control(), dialect.in_reasoning);
    status_ = frame.status();
    if (!frame.ok()) return;
    content.frame = *frame;
    compile(content);
  }
};

// A reply that may call `stop`, of the two tools that the model knows.
class Stopping : public Replies {
 public:
  explicit Stopping(const Dialect& dialect)
      : Replies(dialect, {.tool_names = {"stop"}, .other_tools = OtherTools::kText}) {
    ToolUse use = use_of(Json::parse(kTools), "required");
    use.choice = ToolChoice::kAuto;
    use.allowed = {"stop"};
    const auto text = allowed_calls_grammar(use, syntax_, control(), dialect.in_reasoning);
    if (text) compile({.kind = GrammarKind::kLark, .text = *text});
  }
};

// What a forced call of the dialect is, as a model would write it.
std::string call_in(const Dialect& dialect, const Json& choice = "required") {
  Walk walk(dialect, choice, false);
  EXPECT_EQ(walk.take(7).tool_calls().size(), 1u);
  return walk.written();
}

TEST(ToolGrammar, ContentOfASchemaOrCallsOfEveryDialect) {
  for (const Dialect& dialect : kDialects) {
    SCOPED_TRACE(dialect.source);
    const Either either(dialect, {.kind = GrammarKind::kJsonSchema, .text = kContent});
    ASSERT_TRUE(either.status().ok());
    const std::string call = call_in(dialect);
    const std::optional<ModelOutput> called = either.read(call);
    ASSERT_TRUE(called.has_value()) << call;
    ASSERT_EQ(called->tool_calls().size(), 1u) << call;
    check(called->tool_calls()[0]);
    EXPECT_EQ(called->text(), "");

    // Content stays as it was written, also where it names a tool or spells a call's mark.
    const std::string before =
        dialect.begin + (either.harmony() ? "<|start|>assistant<|channel|>final<|message|>" : "");
    for (const char* content :
         {R"({"name": "Ann", "mark": "a"})", R"({"name":"set", "mark" : "b"})",
          R"({ "name": "stop", "mark": "<tool_call> [TOOL_CALLS]stop{} <function=stop>{}" })"}) {
      const std::optional<ModelOutput> said = either.read(before, content);
      ASSERT_TRUE(said.has_value()) << content;
      EXPECT_EQ(said->text(), content);
      EXPECT_TRUE(said->tool_calls().empty()) << content;
      EXPECT_EQ(said->reasoning(), dialect.begin.empty() ? "" : "Hm.");
    }
    for (const char* other : {"Hello", R"({"name": 1})", R"({"name": "Ann", "mark": "a"} and more)", "[]"})
      EXPECT_FALSE(either.read(before, other).has_value()) << other;
    EXPECT_FALSE(either.read(call, R"({"name": "Ann", "mark": "a"})").has_value());
  }
}

TEST(ToolGrammar, WhateverItAllowsIsReadAsCallsOrAsContent) {
  std::size_t called = 0;
  std::size_t said = 0;
  Json strict = Json::parse(kTools);
  for (Json& tool : strict) tool["function"]["strict"] = true;
  for (const Dialect& dialect : kDialects) {
    SCOPED_TRACE(dialect.source);
    const Either either(dialect, {.kind = GrammarKind::kJsonSchema, .text = kContent}, strict);
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      const std::string text = either.draw(dialect.begin, seed);
      SCOPED_TRACE(text);
      const std::optional<ModelOutput> output = either.read(text);
      ASSERT_TRUE(output.has_value());
      for (const ToolCall& call : output->tool_calls()) check(call);
      if (!output->tool_calls().empty()) {
        EXPECT_EQ(output->text(), "");
        ++called;
        continue;
      }
      const Json content = Json::parse(output->text(), nullptr, false);
      ASSERT_TRUE(content.is_object()) << output->text();
      EXPECT_TRUE(content.size() == 2 && content["name"].is_string() && content["mark"].is_string());
      ++said;
    }
  }
  EXPECT_GT(called, 20u);
  EXPECT_GT(said, 20u);
}

TEST(ToolGrammar, AnyObjectOrCallsThatAreBareJson) {
  const Either either(kDialects[0], {.kind = GrammarKind::kJsonObject, .text = {}});
  ASSERT_TRUE(either.status().ok());
  for (const char* content :
       {"{}", R"({"names": ["set"]})", R"({"name": "set"})", R"({"a": {"name": "x"}})"}) {
    const std::optional<ModelOutput> said = either.read(content);
    ASSERT_TRUE(said.has_value()) << content;
    EXPECT_EQ(said->text(), content);
  }
  const std::string call = R"({"name": "stop", "arguments": {"now": true}})";
  EXPECT_EQ(either.read(call)->tool_calls().size(), 1u);
  EXPECT_EQ(either.read(call + "\n" + call)->tool_calls().size(), 2u);
  EXPECT_FALSE(either.read(call + "\nDone.").has_value());
}

// Only the arguments of strict tools are held to their schemas: others may have schemas that no grammar
// knows.
TEST(ToolGrammar, BesideContentStrictToolsAloneAreHeldToTheirSchemas) {
  const Either either(kDialects[2], {.kind = GrammarKind::kJsonSchema, .text = kContent});
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
  };
  EXPECT_TRUE(either.read(call("set", "{\"x\": 1}")).has_value());
  EXPECT_FALSE(either.read(call("stop", "{\"x\": 1}")).has_value());
  EXPECT_TRUE(either.read(call("stop", "{\"now\": false}")).has_value());
  EXPECT_FALSE(either.read(call("leave", "{}")).has_value());
}

TEST(ToolGrammar, ContentOfOtherKindsWhereCallsBeginWithControlTokens) {
  const Dialect& marked = kDialects[3];
  const std::vector<std::pair<GrammarSource, std::string>> kinds = {
      {{.kind = GrammarKind::kRegex, .text = "[a-z<_> ]+"}, "<tool_ call>"},
      {{.kind = GrammarKind::kChoice, .text = R"(["yes","no"])"}, "no"},
      {{.kind = GrammarKind::kLark, .text = "start: call+\ncall: /[a-z]/ \";\""}, "a;b;"},
      {{.kind = GrammarKind::kGbnf, .text = "root ::= \"(\" root? \")\""}, "(())"},
  };
  for (const auto& [source, text] : kinds) {
    SCOPED_TRACE(source.text);
    const Either either(marked, source);
    ASSERT_TRUE(either.status().ok()) << either.status().to_string();
    EXPECT_EQ(either.read(text)->text(), text);
    EXPECT_EQ(either.read(call_in(marked))->tool_calls().size(), 1u);
    EXPECT_FALSE(either.read("No.").has_value());
    // Where a call is spelled as text is, none of them can be told from it.
    EXPECT_EQ(Either(kDialects[2], source).status().field(), "response_format");
    EXPECT_EQ(Either(kDialects[0], source).status().field(), "response_format");
  }
  for (const char* source : {"{{ tools }}<|tool_call>", "{{ tools }}<function=<parameter="}) {
    const Either none({source, {}, ""}, {.kind = GrammarKind::kJsonSchema, .text = kContent});
    EXPECT_EQ(none.status().field(), "response_format");
    EXPECT_NE(none.status().message().find("tool_choice none"), std::string::npos);
  }
}

TEST(ToolGrammar, ForcedCallsAreOfTheAllowedTools) {
  for (const Dialect& dialect : kDialects) {
    SCOPED_TRACE(dialect.source);
    Walk walk(dialect, "required", true, {"stop"});
    ASSERT_TRUE(walk.ready());
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      for (const ToolCall& call : walk.take(seed).tool_calls()) EXPECT_EQ(call.name, "stop");
    }
  }
}

TEST(ToolGrammar, ATextInWhichOnlyAllowedToolsAreCalled) {
  const auto named = [](const char* name) -> Json {
    return {{"type", "function"}, {"function", {{"name", name}}}};
  };
  std::size_t held = 0;
  for (const Dialect& dialect : kDialects) {
    SCOPED_TRACE(dialect.source);
    const Stopping replies(dialect);
    if (!replies.is_held()) continue;  // bare JSON
    ++held;
    const std::string reasoning = dialect.begin.empty() ? "" : "Hm.";
    const std::string call = call_in(dialect, named("stop"));
    const std::optional<ModelOutput> called = replies.read(call);
    ASSERT_TRUE(called.has_value()) << call;
    ASSERT_EQ(called->tool_calls().size(), 1u) << call;
    check(called->tool_calls()[0]);
    EXPECT_EQ(called->text(), "");
    EXPECT_EQ(called->reasoning(), reasoning);
    EXPECT_FALSE(replies.read(call_in(dialect, named("set"))).has_value()) << "the other tool";

    const std::string end = replies.harmony() ? "<|start|>assistant<|channel|>final<|message|>" : "";
    for (const char* text :
         {"Hello.", R"({"name": "set", "arguments": {}})", "Of <b>calls</b>:\n- [set]\n- é"}) {
      const std::optional<ModelOutput> said = replies.read(dialect.begin + end, text);
      ASSERT_TRUE(said.has_value()) << text;
      EXPECT_EQ(said->text(), text);
      EXPECT_EQ(said->reasoning(), reasoning);
      EXPECT_TRUE(said->tool_calls().empty());
    }
    // A text says what the call is for.
    const std::string why =
        replies.harmony() ? "<|start|>assistant<|channel|>commentary<|message|>Why.<|end|>" : "Why.\n";
    const std::optional<ModelOutput> both =
        replies.read(dialect.begin + why + call.substr(dialect.begin.size()));
    ASSERT_TRUE(both.has_value()) << call;
    EXPECT_EQ(both->text(), "Why.");
    ASSERT_EQ(both->tool_calls().size(), 1u);
    EXPECT_EQ(both->tool_calls()[0].name, "stop");
  }
  EXPECT_EQ(held, kDialects.size() - 2);
}

TEST(ToolGrammar, WhateverItAllowsCallsAllowedToolsAlone) {
  std::size_t calls = 0;
  for (const Dialect& dialect : kDialects) {
    SCOPED_TRACE(dialect.source);
    const Stopping replies(dialect);
    if (!replies.is_held()) continue;
    const std::string call = call_in(dialect, {{"type", "function"}, {"function", {{"name", "stop"}}}});
    const std::size_t before_name = call.rfind("stop");
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      const std::string begin = seed % 2 == 0 ? call.substr(0, before_name) : dialect.begin;
      const std::string text = replies.draw(begin, seed);
      SCOPED_TRACE(text);
      const std::optional<ModelOutput> output = replies.read(text);
      ASSERT_TRUE(output.has_value());
      for (const ToolCall& one : output->tool_calls()) {
        EXPECT_EQ(one.name, "stop");
        // (Its numbers may be larger than any that Json has.)
        EXPECT_TRUE(one.arguments.starts_with('{') && one.arguments.ends_with('}')) << one.arguments;
        ++calls;
      }
    }
  }
  EXPECT_GT(calls, 60u);
}

// The schema that a forced call's arguments are held to.
Json held_to(const Json& parameters) {
  const ToolUse use =
      use_of(Json::array({{{"function", {{"name", "f"}, {"parameters", parameters}}}}}), "required");
  const OutputSyntax syntax = find_output_syntax("{{ messages }}", [](std::string_view) { return false; });
  const std::string text =
      tool_grammar(use, syntax, [](std::string_view) { return std::nullopt; }, false).value().value();
  const std::size_t at = text.find("%json ") + 6;
  return Json::parse(text.substr(at, text.find('\n', at) - at));
}

TEST(ToolGrammar, FillsOnlyDeclaredProperties) {
  const Json inner = {{"type", "object"}, {"properties", {{"x", {{"type", "integer"}}}}}};
  const Json schema = held_to(
      {{"type", "object"}, {"properties", {{"a", inner}, {"list", {{"type", "array"}, {"items", inner}}}}}});
  EXPECT_EQ(schema["additionalProperties"], false);
  EXPECT_EQ(schema["properties"]["a"]["additionalProperties"], false);
  EXPECT_EQ(schema["properties"]["list"]["items"]["additionalProperties"], false);
  // A schema that says so stays open, and so does one that is put together of several.
  Json open = inner;
  open["additionalProperties"] = true;
  EXPECT_EQ(held_to(open)["additionalProperties"], true);
  EXPECT_FALSE(held_to({{"allOf", {inner, inner}}}).contains("additionalProperties"));
  EXPECT_FALSE(held_to({{"type", "object"}}).contains("additionalProperties"));
}

}  // namespace
}  // namespace loci
