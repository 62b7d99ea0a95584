// SPDX-License-Identifier: Apache-2.0
// Published chat templates (LOCI_TEMPLATES, tests/golden/fetch_templates.sh) and vocabularies
// (LOCI_VOCABULARIES): calls that a template renders are read back; no text of a message, tool or result
// becomes a control token.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "loci/model/chat_template.h"
#include "loci/model/text_testing.h"
#include "loci/serve/api/openai/chat_request.h"
#include "loci/serve/conversation/final_message.h"
#include "loci/serve/conversation/output_parser.h"
#include "loci/serve/conversation/template_context.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

// Whatever looks like a control token in the template.
std::vector<std::string> control_texts_of(const std::string& source) {
  static const std::regex kMarks(
      R"(<\|[^|>'" \n{}]{1,40}\|>|<｜[^｜'" ]{1,60}｜>|\[/?[A-Z_]{3,30}\]|<\|[a-z_]+>|<[a-z_]+\|>|<\|"\|>|</?s>|<(?:start|end)_of_turn>|<sep>|<seed:eos>)");
  std::set<std::string> texts;
  for (std::sregex_iterator it(source.begin(), source.end(), kMarks), end; it != end; ++it)
    texts.insert(it->str());
  return {texts.begin(), texts.end()};
}

struct Family {
  std::string name;
  Tokenizer tokenizer;
  ChatTemplate chat;
  ChatSyntax syntax;
};

std::optional<Family> open_family(const std::string& path) {
  const std::string source = read_file(path);
  std::vector<std::string> control = control_texts_of(source);
  const auto tokenizer = tokenizer_from(byte_level_writer(control, {}));
  LOCI_CHECK(tokenizer.ok(), path.c_str());
  auto chat = ChatTemplate::parse(source, *tokenizer);
  if (!chat.ok()) return std::nullopt;
  ChatSyntax syntax = find_chat_syntax(
      source, [&](std::string_view text) { return tokenizer->find(text).has_value(); },
      [&](std::string_view context) { return chat->render(context); });
  return Family{std::filesystem::path(path).stem().string(),
                tokenizer_from(byte_level_writer(std::move(control), {})).value(), std::move(*chat),
                std::move(syntax)};
}

std::vector<std::string> template_files() {
  std::vector<std::string> files;
  const std::string folder = environment("LOCI_TEMPLATES");
  if (folder.empty()) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".jinja") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

Json tools_of(const std::string& words) {
  Json tool = Json::parse(R"({"type": "function", "function": {"name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Which"},
    "days": {"type": "integer", "description": "How many"}}, "required": ["city"]}}})");
  tool["function"]["description"] = "Weather " + words;
  tool["function"]["parameters"]["properties"]["city"]["description"] = "City " + words;
  Json other = tool;
  other["function"]["name"] = "add";
  return Json::array({tool, other});
}

Json call_of(const std::string& id, const std::string& name, const Json& arguments) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments.dump()}}}};
}

Result<std::vector<TokenId>> encode(const Family& family, const Json& messages, const Json& tools,
                                    bool prompt) {
  const Json request = {{"messages", messages}, {"tools", tools}, {"add_generation_prompt", prompt}};
  LOCI_ASSIGN_OR_RETURN(const ChatRequest chat, parse_chat_request(request));
  return family.chat.encode(make_template_context(chat.conversation, family.syntax));
}

// What the template writes as the model's turn, behind the prompt that asks for it.
Result<std::vector<TokenId>> reply_tokens(const Family& family, const Json& messages, const Json& answer) {
  const Json tools = tools_of("of a city");
  LOCI_ASSIGN_OR_RETURN(const std::vector<TokenId> prompt, encode(family, messages, tools, true));
  Json all = messages;
  all.push_back(answer);
  LOCI_ASSIGN_OR_RETURN(std::vector<TokenId> whole, encode(family, all, tools, false));
  auto begin = std::mismatch(prompt.begin(), prompt.end(), whole.begin(), whole.end()).second;
  // Where the prompt goes on otherwise (it opens reasoning), the reply begins on the line that they share.
  if (begin - whole.begin() < static_cast<std::ptrdiff_t>(prompt.size())) {
    while (begin != whole.begin() && !family.tokenizer.is_control(*(begin - 1)) &&
           family.tokenizer.token_bytes(*(begin - 1)) != "\n")
      --begin;
  }
  whole.erase(whole.begin(), begin);
  return whole;
}

ModelOutput parse(const Family& family, const std::vector<TokenId>& tokens) {
  // Behind a prompt that has opened reasoning a reply closes it, and opens none.
  const std::string text = family.tokenizer.decode(tokens, ControlText::kAsControl).value();
  const OutputSyntax& syntax = family.syntax.output;
  const std::size_t close = syntax.reasoning_close.empty() ? text.npos : text.find(syntax.reasoning_close);
  const bool thinks = close != text.npos && text.find(syntax.reasoning_open) > close;

  OutputParser parser(family.syntax.output, {.tool_names = {"get_weather", "add"},
                                             .text_parameters = {{"get_weather", {"city"}}},
                                             .begins_in_reasoning = thinks});
  StreamDecoder decoder(family.tokenizer);
  ModelOutput output;
  for (const TokenId token : tokens) {
    if (family.tokenizer.is_control(token))
      parser.push_control(family.tokenizer.token_bytes(token));
    else
      parser.push(decoder.push(token));
    output.append({.pieces = parser.take(), .logprobs = {}});
  }
  parser.finish();
  output.append({.pieces = parser.take(), .logprobs = {}});
  return output;
}

std::string shown(const ModelOutput& output) {
  std::string text = "text \"" + output.text() + "\" reasoning \"" + output.reasoning() + "\"";
  for (const ToolCall& call : output.tool_calls()) text += " " + call.name + call.arguments;
  return text;
}

// Templates in notations of their own, which the parser does not know.
const std::set<std::string> kOthers = {"Apertus-8B-Instruct",
                                       "GLM-4.6",
                                       "GLM-4.7-Flash",
                                       "GigaChat3-10B-A1.8B",
                                       "Kimi-K3",
                                       "LFM2.5-8B-A1B",
                                       "MiniMax-M1",
                                       "MiniMax-M2",
                                       "MiniMax-M3",
                                       "NVIDIA-Nemotron-Nano-v2",
                                       "Spark2.5",
                                       "deepseek-ai-DeepSeek-V3.2",
                                       "deepseek-ai-DeepSeek-V4",
                                       "deepseek-ai-DeepSeek-V4-Flash-0731",
                                       "fireworks-ai-llama-3-firefunction-v2",
                                       "inclusionai-ling-3.0-flash",
                                       "meetkai-functionary-medium-v3.2",
                                       "muse-glimmer",
                                       "openbmb-MiniCPM5-1B",
                                       "poolside-Laguna-S-2.1",
                                       "poolside-Laguna-XS-2.1",
                                       "poolside-Laguna-XS.2",
                                       "tencent-Hy3",
                                       "upstage-Solar-Open-100B"};

TEST(Templates, CallsAreReadBackAsTheTemplateWroteThem) {
  const std::vector<std::string> files = template_files();
  if (files.empty())
    GTEST_SKIP() << "left to another part (published vocabularies): LOCI_TEMPLATES is not set";
  std::map<std::string, int> dialects;
  const Json arguments = {{"city", "Pa\"r\\is }]\n</tool_call> é"}, {"days", 3}};
  for (const std::string& file : files) {
    const std::optional<Family> family = open_family(file);
    if (!family || kOthers.contains(family->name)) continue;
    const TemplateSupport& support = family->syntax.support;
    SCOPED_TRACE(family->name + ", " + std::string(dialect_name(family->syntax.output.dialect)));
    const Json user = {{"role", "user"}, {"content", "What is the weather?"}};
    Json calls = Json::array({call_of("call_1", "get_weather", arguments)});
    if (support.several_calls && !family->syntax.output.harmony())
      calls.push_back(call_of("call_2", "add", {{"city", "x"}}));
    const Json answer = {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", calls}};
    const auto tokens = reply_tokens(*family, Json::array({user}), answer);
    const std::string known = std::string(dialect_name(family->syntax.output.dialect));
    if (!tokens.ok()) {
      ADD_FAILURE() << tokens.status().to_string();
      continue;
    }
    const ModelOutput output = parse(*family, *tokens);
    const std::vector<ToolCall> read = output.tool_calls();
    bool same = read.size() == calls.size();
    for (std::size_t i = 0; same && i < read.size(); ++i) {
      same = calls[i]["function"]["name"] == read[i].name &&
             Json::parse(read[i].arguments, nullptr, false) ==
                 Json::parse(calls[i]["function"]["arguments"].get<std::string>());
    }
    EXPECT_TRUE(same) << shown(output) << "\nof "
                      << family->tokenizer.decode(*tokens, ControlText::kAsControl).value();
    // Command R+'s template ends with words of its own.
    if (same && family->syntax.output.dialect != ToolDialect::kCommandR) {
      EXPECT_EQ(output.text().find_first_not_of(" \n"), std::string::npos) << shown(output);
    }
    dialects[known] += same;
  }
  for (const auto& [name, count] : dialects) std::cout << name << " " << count << "\n";
}

TEST(Templates, TheLastMessageCanBeContinued) {
  const std::vector<std::string> files = template_files();
  if (files.empty())
    GTEST_SKIP() << "left to another part (published vocabularies): LOCI_TEMPLATES is not set";
  std::size_t tested = 0;
  for (const std::string& file : files) {
    const std::optional<Family> family = open_family(file);
    if (!family) continue;
    SCOPED_TRACE(family->name);
    const std::string text = "Once upon a";
    const Json messages =
        Json::array({{{"role", "user"}, {"content", "A tale."}}, {{"role", "assistant"}, {"content", text}}});
    Conversation conversation =
        parse_chat_request({{"messages", messages}, {"continue_final_message", true}}).value().conversation;
    mark_final_message(conversation);
    auto segments =
        family->chat.render_segments(make_template_context(std::move(conversation), family->syntax));
    if (!segments.ok()) continue;  // a template that refuses such a conversation
    ++tested;
    const Status status = cut_at_mark(text, *segments);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(segments->back().text.ends_with(text)) << segments->back().text;
  }
  std::cout << tested << " of " << files.size() << " templates\n";
  EXPECT_GT(tested, files.size() * 3 / 4);
}

std::vector<std::uint32_t> control_only(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  std::vector<std::uint32_t> control;
  for (const TokenId token : tokens)
    if (tokenizer.is_control(token)) control.push_back(token.value);
  return control;
}

// `words` in every place of a conversation where a client's or a tool's text goes.
Result<std::vector<TokenId>> conversation_with(const Family& family, const std::string& words) {
  Json question = {{"role", "user"}, {"content", "a " + words + " b"}, {"name", "n" + words}};
  const Json arguments = {{"city", words + "x"}, {"k" + words, Json::array({"v" + words})}};
  const Json messages =
      Json::array({{{"role", "system"}, {"content", "s " + words}},
                   question,
                   {{"role", "assistant"},
                    {"content", ""},
                    {"tool_calls", Json::array({call_of("id" + words, "get_weather", arguments)})}},
                   {{"role", "tool"}, {"tool_call_id", "id" + words}, {"content", "r " + words}},
                   {{"role", "assistant"}, {"content", "t " + words}},
                   {{"role", "user"}, {"content", words + "\n" + words}}});
  return encode(family, messages, tools_of(words), true);
}

// All control texts together, and the first of them alone.
void expect_text_stays_text(const Family& family, std::size_t alone_max) {
  std::vector<std::string> hostile = family.tokenizer.control_texts();
  std::string all;
  for (const std::string& text : hostile) all += text;
  if (hostile.size() > alone_max) hostile.resize(alone_max);
  hostile.push_back(all);
  const auto calm = conversation_with(family, "w");
  if (!calm.ok()) return;  // a template that refuses such a conversation
  const std::vector<std::uint32_t> wanted = control_only(family.tokenizer, *calm);
  for (const std::string& text : hostile) {
    const auto tokens = conversation_with(family, text);
    // A template may refuse words that it searches for; it may not obey them.
    if (tokens.ok()) {
      EXPECT_EQ(control_only(family.tokenizer, *tokens), wanted) << text;
    }
  }
}

TEST(Templates, TextNeverBecomesControlInAnyFamily) {
  const std::vector<std::string> files = template_files();
  if (files.empty())
    GTEST_SKIP() << "left to another part (published vocabularies): LOCI_TEMPLATES is not set";
  std::size_t tested = 0;
  for (const std::string& file : files) {
    const std::optional<Family> family = open_family(file);
    if (!family) continue;
    SCOPED_TRACE(family->name);
    tested += conversation_with(*family, "w").ok();
    expect_text_stays_text(*family, 64);
  }
  std::cout << tested << " of " << files.size() << " templates\n";
  EXPECT_GT(tested, files.size() * 3 / 4);
}

// Every control token of every vocabulary, in a conversation that its own or ChatML's template renders.
TEST(Templates, TextNeverBecomesControlInAnyVocabulary) {
  const std::string folder = environment("LOCI_VOCABULARIES");
  if (folder.empty())
    GTEST_SKIP() << "left to another part (published vocabularies): LOCI_VOCABULARIES is not set";
  const std::string plain =
      "{{ tools|tojson }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{{ "
      "m.tool_calls|tojson "
      "}}<|im_end|>\n{% endfor %}";
  std::size_t tested = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path().filename().string());
    const auto file = GgufFile::open(entry.path().string());
    ASSERT_TRUE(file.ok());
    auto tokenizer = Tokenizer::from_gguf(*file);
    if (!tokenizer.ok()) continue;  // a kind that no served family has
    const auto source = file->get_string("tokenizer.chat_template");
    auto chat = ChatTemplate::parse(source.ok() ? *source : plain, *tokenizer);
    ASSERT_TRUE(chat.ok()) << chat.status().to_string();
    const Family family{"", std::move(*tokenizer), std::move(*chat), {}};
    expect_text_stays_text(family, 8);
    ++tested;
  }
  std::cout << tested << " vocabularies\n";
  EXPECT_GT(tested, 10u);
}

}  // namespace
}  // namespace loci
