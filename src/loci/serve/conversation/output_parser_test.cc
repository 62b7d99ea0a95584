// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/output_parser.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "loci/base/random.h"

namespace loci {
namespace {

struct Call {
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};

// What comes out, parts joined by kind in their order: "text|", "(reasoning)", "name{...}".
struct Said {
  std::string text;
  std::string reasoning;
  std::vector<Call> calls;
  bool operator==(const Said&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Said& said) {
  out << "text \"" << said.text << "\", reasoning \"" << said.reasoning << "\"";
  for (const Call& call : said.calls) out << ", " << call.name << " " << call.arguments;
  return out;
}

OutputSyntax syntax_of(std::string_view source) {
  return find_output_syntax(source, [](std::string_view) { return false; });
}

const char* const kQwen3 = "{% if tools %}<tool_call>{% endif %}<think></think>{{ tool_calls }}";
const char* const kLlama = "{% if tools %}{% endif %}<|python_tag|>";
const char* const kMistral = "{{ tools }}[TOOL_CALLS]";
const char* const kHarmony = "{{ tools }}<|start|><|channel|><|message|>";
const char* const kDeepSeek = "{{ tools }}<｜tool▁calls▁begin｜><think>";
const char* const kGeneric = "{{ messages }}";
const char* const kCommandR7b = "{{ tools }}<|START_ACTION|><|START_THINKING|>";
const char* const kCoder = "{{ tools }}<tool_call><function=<parameter=";
const char* const kGemma4 = "{{ tools }}<|tool_call><|channel>thought";
const std::vector<const char*> kAll = {kQwen3,   kLlama,      kMistral, kHarmony, kDeepSeek,
                                       kGeneric, kCommandR7b, kCoder,   kGemma4};

// Control tokens are written in ASCII's 1 and 2: "\1<|end|>\2".
std::vector<std::pair<std::string, bool>> tokens_of(std::string_view text) {
  std::vector<std::pair<std::string, bool>> tokens;
  while (!text.empty()) {
    if (text.front() == '\1') {
      const std::size_t end = text.find('\2');
      tokens.emplace_back(text.substr(1, end - 1), true);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    } else {
      const std::size_t end = std::min(text.find('\1'), text.size());
      tokens.emplace_back(text.substr(0, end), false);
      text.remove_prefix(end);
    }
  }
  return tokens;
}

ModelOutput parse(OutputParser parser, std::string_view text, Random* random) {
  ModelOutput output;
  const auto take = [&] { output.append({.pieces = parser.take(), .logprobs = {}}); };
  for (const auto& [token, control] : tokens_of(text)) {
    if (control) {
      parser.push_control(token);
      take();
      continue;
    }
    for (std::size_t at = 0; at < token.size();) {
      std::size_t size = random == nullptr ? token.size() : 1 + random->below(7);
      // Whole characters alone.
      while (at + size < token.size() && (static_cast<unsigned char>(token[at + size]) & 0xc0) == 0x80)
        ++size;
      parser.push(std::string_view(token).substr(at, size));
      take();
      at += size;
    }
  }
  parser.finish();
  take();
  EXPECT_EQ(parser.undecided(), 0u);
  return output;
}

Said said(const ModelOutput& output) {
  Said out{.text = output.text(), .reasoning = output.reasoning(), .calls = {}};
  for (const ToolCall& call : output.tool_calls()) out.calls.push_back({call.name, call.arguments});
  return out;
}

OutputParserOptions with_tools() {
  return {.tool_names = {"get_weather", "add"}, .text_parameters = {{"get_weather", {"city"}}}};
}

Said read(const char* source, std::string_view text, OutputParserOptions options = with_tools()) {
  const OutputSyntax syntax = syntax_of(source);
  const Said whole = said(parse(OutputParser(syntax, options), text, nullptr));
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Random random(seed);
    EXPECT_EQ(said(parse(OutputParser(syntax, options), text, &random)), whole) << text;
  }
  return whole;
}

const Call kParis{"get_weather", R"({"city": "Paris"})"};
const Call kSum{"add", R"({"a": 1, "b": [2, {"c": "}"}]})"};

TEST(OutputParser, TextInsteadOfCallsStaysAsItIsAndIsNotHeldBack) {
  OutputParserOptions options = with_tools();
  options.calls = CallPlace::kInsteadOfText;
  const std::string call = R"({"name": "get_weather", "arguments": {"city": "Paris"}})";
  EXPECT_EQ(read(kGeneric, call + "\n" + call, options), (Said{"", "", {kParis, kParis}}));
  for (const std::string text :
       {R"({"x": 1, "name": "get_weather", "arguments": {}})", R"({"name": "get_weather", "x": 1})",
        R"({"name": "get_weather"})", R"({"name": "Ann", "arguments": {}})"}) {
    EXPECT_EQ(read(kGeneric, text, options), (Said{text, "", {}}));
  }
  EXPECT_EQ(read(kGeneric, "[" + call + "]", options), (Said{"[" + call + "]", "", {}}));
  const std::string spelled = R"({"a": "<tool_call> [TOOL_CALLS]add{} <think> <|end|>" } )";
  for (const char* source : {kQwen3, kMistral, kGeneric, kCommandR7b})
    EXPECT_EQ(read(source, spelled, options), (Said{spelled, "", {}})) << source;
  EXPECT_EQ(read(kHarmony, "\1<|channel|>\2final\1<|message|>\2" + spelled, options),
            (Said{spelled, "", {}}));

  const OutputSyntax syntax = syntax_of(kGeneric);
  OutputParser parser(syntax, options);
  parser.push(R"({"answer": "It )");
  EXPECT_LE(parser.undecided(), 1u);
}

TEST(OutputParser, Hermes) {
  const std::string calls =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
      "\"Paris\"}}\n</tool_call>\n<tool_call>\n"
      "{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2, {\"c\": \"}\"}]}}\n</tool_call>";
  EXPECT_EQ(read(kQwen3, calls), (Said{"", "", {kParis, kSum}}));
  EXPECT_EQ(read(kQwen3, "<think>\nHm, \nParis.\n</think>\n\nI look it up.\n" + calls + "\n"),
            (Said{"I look it up.", "Hm, \nParis.", {kParis, kSum}}));
  // The marks as control tokens.
  EXPECT_EQ(
      read(
          kQwen3,
          "\1<tool_call>\2{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\1</tool_call>\2"),
      (Said{"", "", {kParis}}));
  EXPECT_EQ(read(kQwen3, "<think>\n\n</think>\n\nYes."), (Said{"Yes.", "", {}}));
  EXPECT_EQ(read(kQwen3, "A <think> in the middle </think>"),
            (Said{"A <think> in the middle </think>", "", {}}));
}

TEST(OutputParser, WithoutToolsCallsAreText) {
  const std::string call = "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>";
  EXPECT_EQ(read(kQwen3, call, {}), (Said{call, "", {}}));
  EXPECT_EQ(read(kGeneric, R"({"name": "add"})", {}), (Said{R"({"name": "add"})", "", {}}));
}

// A call that is not allowed stays as the model wrote it, but for marks that are control tokens.
TEST(OutputParser, CallsOfToolsThatAreNotAllowedAreText) {
  OutputParserOptions options = with_tools();
  options.other_tools = OtherTools::kText;
  const std::string json = R"({"name": "leave", "arguments": {"x": 1}})";
  const std::string hermes = "<tool_call>\n" + json + "\n</tool_call>";
  const std::vector<std::pair<const char*, std::string>> spelled = {
      {kQwen3, hermes},
      {kMistral, "[TOOL_CALLS][" + json + "]"},
      {kMistral, "[TOOL_CALLS]leave[ARGS]{\"x\": 1}"},
      {kLlama, json},
      {kGeneric, json},
      {kCommandR7b, "<|START_ACTION|>[" + json + "]<|END_ACTION|>"},
      {kCoder, "<function=leave>\n<parameter=x>\n1\n</parameter>\n</function>"},
      {kGemma4, "<|tool_call>call:leave{x:1}<tool_call|>"},
  };
  for (const auto& [source, text] : spelled) {
    SCOPED_TRACE(text);
    EXPECT_EQ(read(source, text, options), (Said{text, "", {}}));
  }
  EXPECT_EQ(read(kQwen3, hermes).calls.size(), 1u) << "where all may be called the client is told";
  EXPECT_EQ(
      read(kHarmony, "\1<|channel|>\2commentary to=functions.leave \1<|constrain|>\2json\1<|message|>\2{}",
           options),
      (Said{"{}", "", {}}));
  EXPECT_EQ(
      read(kDeepSeek, "\1<｜tool▁call▁begin｜>\2leave\1<｜tool▁sep｜>\2{}\1<｜tool▁call▁end｜>\2", options),
      (Said{"leave{}", "", {}}));
  // One that is allowed may follow it, also in the same list.
  const std::string paris = R"({"name": "get_weather", "arguments": {"city": "Paris"}})";
  EXPECT_EQ(read(kQwen3, hermes + "\n<tool_call>\n" + paris + "\n</tool_call>", options),
            (Said{hermes, "", {kParis}}));
  EXPECT_EQ(read(kMistral, "[TOOL_CALLS][" + paris + ", " + json + "]", options),
            (Said{", " + json + "]", "", {kParis}}));
}

TEST(OutputParser, ReasoningThatThePromptOpened) {
  OutputParserOptions options = with_tools();
  options.begins_in_reasoning = true;
  EXPECT_EQ(read(kQwen3, "\nHm.\n</think>\n\nYes.", options), (Said{"Yes.", "Hm.", {}}));
  EXPECT_EQ(read(kQwen3, "Hm, and", options), (Said{"", "Hm, and", {}}));
}

TEST(OutputParser, ReasoningInTheText) {
  OutputParserOptions options = with_tools();
  options.reasoning = ReasoningPlace::kInText;
  const std::string thought = "<think>\nHm, \nParis.\n</think>\n\n";
  EXPECT_EQ(read(kQwen3, thought + "Yes.", options), (Said{thought + "Yes.", "", {}}));
  EXPECT_EQ(read(kQwen3, thought + "Yes.", {.reasoning = ReasoningPlace::kInText}),
            (Said{thought + "Yes.", "", {}}));
  EXPECT_EQ(read(kQwen3, "\n" + thought, {.reasoning = ReasoningPlace::kInText}),
            (Said{"\n" + thought, "", {}}));
  // The marks as control tokens.
  EXPECT_EQ(read(kCommandR7b, "\1<|START_THINKING|>\2Hm. \1<|END_THINKING|>\2Yes.", options),
            (Said{"<|START_THINKING|>Hm. <|END_THINKING|>Yes.", "", {}}));
  // A call in it is none; one behind it is one.
  const std::string call =
      "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}</tool_call>";
  EXPECT_EQ(read(kQwen3, "<think>" + call + "</think>" + call, options),
            (Said{"<think>" + call + "</think>", "", {kParis}}));
  EXPECT_EQ(read(kHarmony,
                 "\1<|channel|>\2analysis\1<|message|>\2Hm.\1<|end|>\2\1<|start|>\2assistant\1<|channel|>\2"
                 "final\1<|message|>\2Yes.\1<|return|>\2",
                 options),
            (Said{"<|channel|>analysis<|message|>Hm.<|end|>Yes.", "", {}}));
  options.begins_in_reasoning = true;
  EXPECT_EQ(read(kQwen3, "\nHm.\n</think>\n\nYes.", options), (Said{"\nHm.\n</think>\n\nYes.", "", {}}));
}

TEST(OutputParser, GoesOnInTheMiddle) {
  OutputParserOptions options = with_tools();
  options.continues = true;
  // What would begin a reply otherwise is text there, and a call is one all the same.
  EXPECT_EQ(read(kQwen3, " <think> is a mark.", options), (Said{" <think> is a mark.", "", {}}));
  EXPECT_EQ(read(kGeneric, R"( {"name": "add", "arguments": {}})", options),
            (Said{R"( {"name": "add", "arguments": {}})", "", {}}));
  EXPECT_EQ(
      read(kQwen3,
           " look.\n<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}</tool_call>",
           options),
      (Said{" look.", "", {kParis}}));
  EXPECT_EQ(read(kHarmony, " and so on.\1<|return|>\2", options), (Said{" and so on.", "", {}}));
  options.begins_in_reasoning = true;
  EXPECT_EQ(read(kQwen3, " so 4.\n</think>\n\n4", options), (Said{"4", " so 4.", {}}));
}

TEST(OutputParser, BrokenCallsAreTextOrEnd) {
  const auto whole = [](const char* source, const std::string& text) {
    EXPECT_EQ(read(source, text), (Said{text, "", {}}));
  };
  whole(kQwen3, "<tool_call>\nnothing</tool_call>");
  whole(kQwen3, "<tool_call>{\"name\": 3}");
  whole(kQwen3, "<tool_call>{\"arguments\": {}}");
  whole(kQwen3, "<tool_call>{\"name\": \"add\"");
  whole(kQwen3, "<tool_ca");
  whole(kQwen3, "a < b, <tool_callx>");
  whole(kMistral, "[TOOL_CALLS]no call");
  whole(kMistral, "[TOOL_CALLS]bad name{}");
  whole(kDeepSeek, "<｜tool▁call▁begin｜>x");
  whole(kGeneric, "{\"name\": \"unknown\", \"arguments\": {}}");
  whole(kGeneric, "[1, 2, 3]");
  whole(kGeneric, "```json\n{\"a\": 1}\n```\nmore");
  whole(kLlama, "{\"x\": 1}");
  // Once the arguments have begun the call stands, as far as it went.
  EXPECT_EQ(read(kQwen3, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1,"),
            (Said{"", "", {{"add", "{\"a\": 1,"}}}));
  EXPECT_EQ(read(kQwen3, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}"),
            (Said{"", "", {{"add", "{\"a\": 1}"}}}));
  EXPECT_EQ(read(kQwen3, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": ?}} and more"),
            (Said{"?}} and more", "", {{"add", "{\"a\": "}}}));
}

TEST(OutputParser, ArgumentsOfOtherShapes) {
  const auto call = [](const std::string& inner) {
    return read(kQwen3, "<tool_call>" + inner + "</tool_call>");
  };
  EXPECT_EQ(call(R"({"arguments": {"city": "Paris"}, "name": "get_weather"})"), (Said{"", "", {kParis}}));
  EXPECT_EQ(call(R"({"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"})"),
            (Said{"", "", {kParis}}));
  EXPECT_EQ(call(R"({"id": 3, "name": "add", "arguments": null})"), (Said{"", "", {{"add", "{}"}}}));
  EXPECT_EQ(call(R"({"name": "add"})"), (Said{"", "", {{"add", "{}"}}}));
  EXPECT_EQ(call("{\"name\": \"add\", \"arguments\": {\"a\": \"x\ny\"}}"),
            (Said{"", "", {{"add", R"({"a": "x\ny"})"}}}));
  EXPECT_EQ(call(R"({"name": "ädd", "arguments": {"ä": "ü"}})"), (Said{"", "", {{"ädd", R"({"ä": "ü"})"}}}));
}

TEST(OutputParser, Llama3Json) {
  const std::string one = R"({"name": "get_weather", "parameters": {"city": "Paris"}})";
  EXPECT_EQ(read(kLlama, one), (Said{"", "", {kParis}}));
  EXPECT_EQ(read(kLlama, "\1<|python_tag|>\2" + one), (Said{"", "", {kParis}}));
  EXPECT_EQ(read(kLlama, R"({"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}})"),
            (Said{"", "", {kParis}}));
  EXPECT_EQ(read(kLlama, one + "; " + one), (Said{"", "", {kParis, kParis}}));
}

TEST(OutputParser, Generic) {
  const std::string one = R"({"name": "get_weather", "arguments": {"city": "Paris"}})";
  EXPECT_EQ(read(kGeneric, one + "\n" + one), (Said{"", "", {kParis, kParis}}));
  EXPECT_EQ(read(kGeneric, "[" + one + ", " + one + "]"), (Said{"", "", {kParis, kParis}}));
  EXPECT_EQ(read(kGeneric, "Sure:\n```json\n" + one + "\n```\n"), (Said{"Sure:", "", {kParis}}));
  EXPECT_EQ(read(kGeneric, one + "\nDone."), (Said{"\nDone.", "", {kParis}}));
}

TEST(OutputParser, Mistral) {
  EXPECT_EQ(
      read(kMistral,
           R"([TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "abcdefghi"}])"),
      (Said{"", "", {kParis}}));
  EXPECT_EQ(read(kMistral,
                 "\1[TOOL_CALLS]\2get_weather\1[CALL_ID]\2abcdefghi\1[ARGS]\2{\"city\": \"Paris\"}"
                 "\1[TOOL_CALLS]\2add\1[ARGS]\2{\"a\": 1, \"b\": [2, {\"c\": \"}\"}]}"),
            (Said{"", "", {kParis, kSum}}));
  EXPECT_EQ(read(kMistral, "I do. [TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\"}"),
            (Said{"I do.", "", {kParis}}));
}

TEST(OutputParser, Harmony) {
  EXPECT_EQ(read(kHarmony,
                 "\1<|channel|>\2analysis\1<|message|>\2Hm.\1<|end|>\2\1<|start|>\2assistant\1<|channel|>\2"
                 "final\1<|message|>\2Yes, \nthat.\1<|return|>\2"),
            (Said{"Yes, \nthat.", "Hm.", {}}));
  EXPECT_EQ(
      read(kHarmony,
           "\1<|channel|>\2analysis\1<|message|>\2Hm.\1<|end|>\2\1<|start|>\2assistant\1<|channel|>\2"
           "commentary to=functions.get_weather \1<|constrain|>\2json\1<|message|>\2{\"city\": \"Paris\"}"
           "\1<|call|>\2"),
      (Said{"", "Hm.", {kParis}}));
  EXPECT_EQ(
      read(kHarmony,
           " to=functions.get_weather\1<|channel|>\2commentary json\1<|message|>\2{\"city\": \"Paris\"}"),
      (Said{"", "", {kParis}}));
  EXPECT_EQ(read(kHarmony, "<|channel|>commentary<|message|>I look.<|end|>"), (Said{"I look.", "", {}}));
  EXPECT_EQ(read(kHarmony, "no channel at all"), (Said{"no channel at all", "", {}}));
  EXPECT_EQ(read(kHarmony, "\1<|channel|>\2commentary to=functions.add\1<|message|>\2{\"a\": \1<|call|>\2"),
            (Said{"", "", {{"add", "{\"a\": "}}}));
}

TEST(OutputParser, DeepSeek) {
  EXPECT_EQ(
      read(kDeepSeek,
           "<think>Hm.</"
           "think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
           "```json\n{\"city\": "
           "\"Paris\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n"
           "```json\n{\"a\": 1, \"b\": [2, {\"c\": \"}\"}]}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
      (Said{"", "Hm.", {kParis, kSum}}));
  EXPECT_EQ(read(kDeepSeek,
                 "\1<｜tool▁calls▁begin｜>\2\1<｜tool▁call▁begin｜>\2get_weather\1<｜tool▁sep｜>\2{\"city\": "
                 "\"Paris\"}"
                 "\1<｜tool▁call▁end｜>\2\1<｜tool▁calls▁end｜>\2"),
            (Said{"", "", {kParis}}));
}

TEST(OutputParser, CommandR7b) {
  EXPECT_EQ(
      read(kCommandR7b,
           "\1<|START_THINKING|>\2I look.\1<|END_THINKING|>\2\1<|START_ACTION|>\2[\n    {\"tool_call_id\": "
           "\"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": "
           "\"Paris\"}}\n]\1<|END_ACTION|>\2"),
      (Said{"", "I look.", {kParis}}));
  EXPECT_EQ(read(kCommandR7b, "<|START_RESPONSE|>Yes.<|END_RESPONSE|>"), (Said{"Yes.", "", {}}));
}

TEST(OutputParser, QwenCoder) {
  EXPECT_EQ(
      read(kCoder,
           "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n"
           "</parameter>\n</function>\n</tool_call>"),
      (Said{"", "", {{"get_weather", R"({"city": "12", "days": 3})"}}}));
  EXPECT_EQ(read(kCoder, "<tool_call><function=add></function></tool_call>"),
            (Said{"", "", {{"add", "{}"}}}));
  EXPECT_EQ(read(kCoder, "<function=add> <b>"), (Said{"<function=add> <b>", "", {}}));
}

TEST(OutputParser, Gemma4) {
  EXPECT_EQ(read(kGemma4,
                 "\1<|tool_call>\2call:get_weather{city:\1<|\"|>\2Pa\"ris\1<|\"|>\2,days:3,deep:{x:[true,<|"
                 "\"|>a<|\"|>]}}"
                 "\1<tool_call|>\2"),
            (Said{"", "", {{"get_weather", R"({"city":"Pa\"ris","days":3,"deep":{"x":[true,"a"]}})"}}}));
}

// A limit may cut a reply off anywhere: what is there of the marks behind a call is no text.
TEST(OutputParser, MarksThatAreCutOffBehindACallAreNoText) {
  struct Written {
    const char* source;
    std::string call;
    std::string marks;  // behind it, up to the next call's content
  };
  const std::vector<Written> all = {
      {kQwen3, R"(<tool_call>{"name": "add", "arguments": {"a": 1}})", "\n</tool_call>\n<tool_call>\n"},
      {kLlama, R"({"name": "add", "parameters": {"a": 1}})", "; "},
      {kGeneric, R"({"name": "add", "arguments": {"a": 1}})", "\n```\n"},
      {kMistral, R"([TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}])", "[TOOL_CALLS]"},
      {kDeepSeek, "<｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 1}",
       "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>"},
      {kCommandR7b, R"(<|START_ACTION|>[{"tool_name": "add", "parameters": {"a": 1}}])",
       "<|END_ACTION|><|START_ACTION|>"},
      {kCoder, "<function=add>\n<parameter=a>\n1\n</parameter>\n</function>",
       "\n</tool_call>\n<tool_call>\n<function="},
      {kGemma4, "<|tool_call>call:add{a:1}", "<tool_call|><|tool_call>"},
  };
  for (const Written& one : all) {
    const Said whole = read(one.source, one.call);
    ASSERT_EQ(whole.calls.size(), 1u) << one.call;
    ASSERT_EQ(whole.text, "") << one.call;
    for (std::size_t size = 1; size <= one.marks.size(); ++size) {
      // Whole characters alone.
      if (size < one.marks.size() && (static_cast<unsigned char>(one.marks[size]) & 0xc0) == 0x80) continue;
      EXPECT_EQ(read(one.source, one.call + one.marks.substr(0, size)), whole) << size;
    }
  }
}

// However the text is cut, and whatever it is, the output is the same, and nothing is lost.
TEST(OutputParser, AnyTextInAnyPieces) {
  const std::vector<std::string> parts = {"<tool_call>",
                                          "</tool_call>",
                                          "{\"name\": \"add\", \"arguments\": ",
                                          "{\"a\": [1, \"x\"]}",
                                          "}",
                                          "\n",
                                          " ",
                                          "[TOOL_CALLS]",
                                          "add",
                                          "[ARGS]",
                                          "{",
                                          "\"",
                                          "<think>",
                                          "</think>",
                                          "text é",
                                          "<|channel|>",
                                          "\1<|channel|>\2",
                                          "\1<|message|>\2",
                                          "analysis",
                                          "final",
                                          "commentary to=functions.add",
                                          "\1<|end|>\2",
                                          "\1<|start|>\2",
                                          "<｜tool▁call▁begin｜>",
                                          "<｜tool▁sep｜>",
                                          "```json",
                                          "```",
                                          "<function=",
                                          "<parameter=a>",
                                          "</parameter>",
                                          "</function>",
                                          ">",
                                          "\1<|tool_call>\2",
                                          "call:add",
                                          "a:",
                                          "<|\"|>",
                                          "\1<|\"|>\2",
                                          "\1<|START_ACTION|>\2",
                                          "[",
                                          "]",
                                          ","};
  Random random(5);
  for (const char* source : kAll) {
    const OutputSyntax syntax = syntax_of(source);
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      for (std::uint64_t n = 1 + random.below(12); n > 0; --n) text += parts[random.below(parts.size())];
      OutputParserOptions options = with_tools();
      if (i % 2 == 0) options = {.tool_names = {"get_weather"}, .other_tools = OtherTools::kText};
      const Said whole = said(parse(OutputParser(syntax, options), text, nullptr));
      ASSERT_EQ(said(parse(OutputParser(syntax, options), text, &random)), whole) << text;
      ASSERT_EQ(whole.text.find('\1'), std::string::npos);
      // Every letter of words that no mark holds is still there.
      for (const Call& call : whole.calls) ASSERT_FALSE(call.name.empty()) << text;
      for (const Call& call : whole.calls) ASSERT_TRUE(i % 2 != 0 || call.name == "get_weather") << text;
      const auto count = [](std::string_view in, std::string_view what) {
        std::size_t n = 0;
        for (std::size_t at = 0; (at = in.find(what, at)) != std::string_view::npos; ++at) ++n;
        return n;
      };
      std::string out = whole.text + whole.reasoning;
      for (const Call& call : whole.calls) out += call.name + call.arguments;
      if (!syntax.harmony() && source != kCoder) {
        ASSERT_EQ(count(out, "é"), count(text, "é")) << text << "\n" << out;
      }
    }
  }
}

}  // namespace
}  // namespace loci
