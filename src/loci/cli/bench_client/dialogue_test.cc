// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/dialogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace loci {
namespace {

TEST(ReadDialogues, TakesThreeForms) {
  const auto read = read_dialogues(
      R"({"id":1,"messages":[{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"assistant","content":"x"},{"role":"user","content":"b"}]})"
      "\n\r\n"
      R"({"conversations":[{"from":"human","value":"c"},{"from":"gpt","value":"y"}]})"
      "\r\n"
      R"({"question_id":81,"turns":["d","e","f"]})",
      "file");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  ASSERT_EQ(read->size(), 3u);
  EXPECT_EQ((*read)[0].system, "S");
  EXPECT_EQ((*read)[0].turns, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ((*read)[1].turns, (std::vector<std::string>{"c"}));
  EXPECT_EQ((*read)[2].turns, (std::vector<std::string>{"d", "e", "f"}));
}

TEST(ReadDialogues, NamesTheLineThatIsWrong) {
  const auto error = [](std::string_view line) {
    return read_dialogues("{\"turns\":[\"a\"]}\n" + std::string(line), "file").status();
  };
  for (const char* line :
       {"{", "[]", "{}", R"({"turns":[5]})", R"({"turns":[]})", R"({"messages":5})",
        R"({"messages":[{"role":"user"}]})", R"({"messages":[{"role":"owl","content":"x"}]})",
        R"({"messages":[{"role":"assistant","content":"x"}]})"}) {
    EXPECT_EQ(error(line).code(), StatusCode::kInvalidArgument) << line;
    EXPECT_EQ(error(line).field(), "file");
    EXPECT_TRUE(error(line).message().starts_with("line 2: ")) << error(line).message();
  }
  EXPECT_FALSE(read_dialogues("\n \n", "file").ok());
  EXPECT_NE(read_dialogues("\x1f\x8b\x08", "file").status().message().find("zcat"), std::string::npos);
}

TEST(ReadDialogues, SaysWhatWasExpectedAndFound) {
  const auto error = [](std::string_view text) { return read_dialogues(text, "file").status().message(); };
  EXPECT_EQ(error("[]"), "line 1: expected a JSON object");
  const std::string deep = R"({"turns":["a"],"more":)" + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_TRUE(error(deep).starts_with("line 1: the JSON is nested deeper than 64 levels")) << error(deep);
  EXPECT_EQ(error("{}"), "line 1: expected one of 'messages', 'conversations' and 'turns'");
  EXPECT_EQ(error(R"({"turns":[5]})"), "line 1: expected 'turns' to be a list of texts");
  EXPECT_EQ(error(R"({"turns":[]})"), "line 1: expected at least one message of the user, found none");
  EXPECT_EQ(error(R"({"messages":5})"), "line 1: expected a list of messages");
  EXPECT_EQ(error(R"({"messages":[{"role":"user"}]})"),
            "line 1: expected messages with texts 'role' and 'content'");
  EXPECT_EQ(error(R"({"conversations":[{"from":"human"}]})"),
            "line 1: expected messages with texts 'from' and 'value'");
  EXPECT_EQ(error(R"({"messages":[{"role":"owl","content":"x"}]})"),
            "line 1: expected user, assistant or system; got the role 'owl'");
  EXPECT_EQ(error("\n \n"), "holds no dialogue");
}

std::vector<Dialogue> numbered(std::size_t count, std::size_t turns) {
  std::vector<Dialogue> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t t = 0; t < turns; ++t)
      out[i].turns.push_back(std::to_string(i) + "." + std::to_string(t));
  }
  return out;
}

TEST(MakeWorkload, MakesNoMoreThanFitsInMemory) {
  const auto error = [](std::vector<Dialogue> file, const WorkloadOptions& options) {
    return make_workload(std::move(file), options).status().message();
  };
  EXPECT_EQ(
      error({}, {.conversations = 1'000'000, .turns = 10'000}),
      "expected texts of at most 200,000,000 tokens in all, found 1,000,000 conversations of 500,000: take "
      "fewer or shorter ones");
  EXPECT_NE(error({}, {.conversations = 1'000'000, .prompt_tokens = 51}), "");
  EXPECT_NE(error(numbered(2, 1), {.conversations = 2, .private_prefix_tokens = 100'000'001}), "");
  EXPECT_EQ(error(numbered(2, 1), {.conversations = 2, .turns = 1, .prompt_tokens = 10'000'000}), "")
      << "what a file says is there already";
}

TEST(MakeWorkload, JoinsDialoguesUntilThereAreTurnsEnoughAndUsesEachOnce) {
  const auto made = make_workload(numbered(9, 3), {.conversations = 3, .turns = 7, .seed = 4});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  ASSERT_EQ(made->size(), 3u);
  std::set<std::string> said;
  for (const Dialogue& dialogue : *made) {
    EXPECT_EQ(dialogue.turns.size(), 7u);
    for (const std::string& turn : dialogue.turns) EXPECT_TRUE(said.insert(turn).second) << turn;
    EXPECT_TRUE(dialogue.turns[0].ends_with(".0"));
    EXPECT_TRUE(dialogue.turns[3].ends_with(".0"));
  }
  const auto too_many = make_workload(numbered(9, 3), {.conversations = 4, .turns = 7});
  EXPECT_EQ(too_many.status().field(), "--conversations");
  EXPECT_EQ(too_many.status().message(),
            "the file has 9 dialogues, which are enough for 3 conversations; expected enough for 4: ask for "
            "fewer, or for fewer turns");
}

TEST(MakeWorkload, LeavesTheFilesTurnsWhereNoneAreAsked) {
  const auto made = make_workload(numbered(5, 2), {.conversations = 5});
  ASSERT_TRUE(made.ok());
  for (const Dialogue& dialogue : *made) EXPECT_EQ(dialogue.turns.size(), 2u);
}

std::size_t tokens_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return c == ' ' || c == '.'; })) +
         1;
}

TEST(MakeWorkload, PutsADocumentOfItsOwnInFrontOfEachConversation) {
  const auto made = make_workload(
      {}, {.conversations = 16, .turns = 2, .prompt_tokens = 20, .private_prefix_tokens = 1000});
  ASSERT_TRUE(made.ok());
  std::set<std::string> starts;
  for (const Dialogue& dialogue : *made) {
    ASSERT_EQ(dialogue.turns.size(), 2u);
    EXPECT_TRUE(starts.insert(dialogue.turns[0].substr(0, 40)).second);
    EXPECT_NEAR(static_cast<double>(tokens_of(dialogue.turns[0])), 1020, 3);
    EXPECT_NEAR(static_cast<double>(tokens_of(dialogue.turns[1])), 20, 2);
  }
}

TEST(MakeWorkload, SaysTheSameForTheSameSeedAlone) {
  const auto text = [](std::uint64_t seed) {
    const auto made = make_workload({}, {.conversations = 2, .private_prefix_tokens = 50, .seed = seed});
    return (*made)[1].turns[0] + (*made)[1].turns[3];
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

}  // namespace
}  // namespace loci
