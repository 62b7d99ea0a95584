// SPDX-License-Identifier: Apache-2.0
// Items: what is taken, what is refused, and the messages that they become.
#include "loci/serve/api/responses/items.h"
#include "loci/serve/conversation/template_context.h"
#include "loci/serve/wire/json.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "loci/serve/api/responses/ids.h"

namespace loci {
namespace {

Item accepted_item(const Json& item) {
  Result<std::vector<Item>> result = parse_items(Json::array({item}), "input");
  EXPECT_TRUE(result.ok()) << item.dump() << ": " << result.status().to_string();
  return result.ok() ? result->front() : Item{};
}

void refused_item(const Json& item, const std::string& field, const std::string& part = "") {
  const Result<std::vector<Item>> result = parse_items(Json::array({item}), "input");
  ASSERT_FALSE(result.ok()) << item.dump();
  EXPECT_EQ(result.status().field(), field) << item.dump();
  EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
}

// As a template sees them.
Json messages(const Json& items) {
  const Result<std::vector<Item>> parsed = parse_items(items, "input");
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  if (!parsed.ok()) return {};
  Conversation conversation;
  conversation.messages = to_messages(parsed.value());
  return Json::parse(make_template_context(std::move(conversation), {}))["messages"];
}

Json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
Json call(const std::string& id, const std::string& name) {
  return {{"type", "function_call"}, {"call_id", id}, {"name", name}, {"arguments", "{}"}};
}

TEST(Items, MessagesAreWrittenOut) {
  const Item said = accepted_item(user("hi"));
  EXPECT_EQ(Json(said), Json({{"id", ""},
                              {"type", "message"},
                              {"status", "completed"},
                              {"role", "user"},
                              {"content", {{{"type", "input_text"}, {"text", "hi"}}}}}));
  const Item answer =
      accepted_item({{"role", "assistant"}, {"content", "yes"}, {"id", "msg_1"}, {"type", "message"}});
  EXPECT_EQ(answer["content"][0]["type"], "output_text");
  EXPECT_EQ(answer["content"][0]["annotations"], Json::array());
  EXPECT_EQ(answer["id"], "msg_1");
  EXPECT_EQ(accepted_item({{"role", "assistant"},
                           {"content", {{{"type", "refusal"}, {"refusal", "no"}}}}})["content"][0]["refusal"],
            "no");
  EXPECT_EQ(
      accepted_item({{"role", "developer"}, {"content", {{{"type", "input_text"}, {"text", "d"}}}}})["role"],
      "developer");
}

TEST(Items, RefusedMessages) {
  refused_item({{"role", "tool"}, {"content", "x"}}, "input[0].role", "developer");
  refused_item({{"content", "x"}}, "input[0].role", "required");
  refused_item({{"role", "user"}}, "input[0].content", "required");
  refused_item({{"role", "user"}, {"content", 4}}, "input[0].content", "4");
  refused_item({{"role", "user"}, {"content", {"x"}}}, "input[0].content[0]", "object");
  refused_item({{"role", "user"}, {"content", {{{"type", "input_image"}}}}}, "input[0].content[0].type",
               "expected input_text or output_text, what this server takes; got \"input_image\"");
  refused_item({{"role", "user"}, {"content", {{{"type", "refusal"}, {"refusal", "x"}}}}},
               "input[0].content[0].type");
  refused_item({{"role", "user"}, {"content", {{{"type", "input_text"}}}}}, "input[0].content[0].text",
               "required");
  refused_item({{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", 1}}}}},
               "input[0].content[0].text");
  refused_item({{"role", "user"}, {"content", "x"}, {"status", "odd"}}, "input[0].status",
               "expected in_progress, completed or incomplete; got \"odd\"");
  refused_item({{"role", "user"}, {"content", "x"}, {"id", std::string(kItemIdBytesMax + 1, 'x')}},
               "input[0].id", "256");
  accepted_item({{"role", "user"}, {"content", "x"}, {"id", std::string(kItemIdBytesMax, 'x')}});
}

TEST(Items, CallsAndTheirResults) {
  EXPECT_EQ(accepted_item(call("c", "f"))["arguments"], "{}");
  EXPECT_EQ(accepted_item({{"type", "function_call_output"}, {"call_id", "c"}, {"output", "5"}})["output"],
            "5");
  const Json parts = {{{"type", "input_text"}, {"text", "5"}}};
  EXPECT_EQ(
      Json(accepted_item({{"type", "function_call_output"}, {"call_id", "c"}, {"output", parts}})["output"]),
      parts);
  for (const char* name : {"call_id", "name", "arguments"}) {
    Json item = call("c", "f");
    item.erase(name);
    refused_item(item, std::string("input[0].") + name, "required");
  }
  refused_item({{"type", "function_call_output"}, {"output", "5"}}, "input[0].call_id", "required");
  refused_item({{"type", "function_call_output"}, {"call_id", "c"}}, "input[0].output", "required");
  refused_item({{"type", "function_call_output"}, {"call_id", "c"}, {"output", 5}}, "input[0].output", "5");
  refused_item({{"type", "computer_call"}}, "input[0].type", "computer_call");
  refused_item({{"type", 3}}, "input[0].type", "a string");
  refused_item({{"type", "reasoning"}, {"content", 3}}, "input[0].content", "reasoning_text");
  refused_item({{"type", "item_reference"}}, "input[0].id", "required");
}

TEST(Items, OneTurnOfTheAssistantIsOneMessage) {
  const Json items = {user("q"),
                      {{"type", "reasoning"},
                       {"summary", Json::array()},
                       {"content", {{{"type", "reasoning_text"}, {"text", "think"}}}}},
                      {{"role", "assistant"}, {"content", "I look"}},
                      call("c1", "f"),
                      call("c2", "g"),
                      {{"type", "function_call_output"}, {"call_id", "c2"}, {"output", "2"}},
                      {{"role", "assistant"}, {"content", "done"}}};
  const Json got = messages(items);
  ASSERT_EQ(got.size(), 4u) << got.dump(1);
  EXPECT_EQ(got[0], user("q"));
  EXPECT_EQ(got[1]["content"], "I look");
  EXPECT_EQ(got[1]["reasoning_content"], "think");
  ASSERT_EQ(got[1]["tool_calls"].size(), 2u);
  EXPECT_EQ(got[1]["tool_calls"][1]["function"]["name"], "g");
  EXPECT_EQ(got[2], Json({{"role", "tool"}, {"content", "2"}, {"tool_call_id", "c2"}, {"name", "g"}}));
  EXPECT_EQ(got[3]["content"], "done");
  EXPECT_FALSE(got[3].contains("reasoning_content"));
}

TEST(Items, CallsWithoutTextAndWhatIsLeftOut) {
  const Json got = messages({user("q"), call("c1", "f")});
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[1]["content"], "");
  EXPECT_EQ(got[1]["tool_calls"].size(), 1u);
  Json cut = call("c1", "f");
  cut["status"] = "incomplete";
  EXPECT_EQ(messages({user("q"), cut}).size(), 1u);
  // Reasoning that no reply followed.
  const Json thought = {{"type", "reasoning"}, {"content", {{{"type", "reasoning_text"}, {"text", "t"}}}}};
  const Json after = messages({thought, user("q"), {{"role", "assistant"}, {"content", "a"}}});
  ASSERT_EQ(after.size(), 2u);
  EXPECT_FALSE(after[1].contains("reasoning_content"));
  EXPECT_EQ(messages({{{"role", "user"},
                       {"content",
                        {{{"type", "input_text"}, {"text", "a"}},
                         {{"type", "input_text"}, {"text", "b"}}}}}})[0]["content"],
            "a\nb");
}

TEST(Items, IdsAreGivenOnceAndKept) {
  Result<std::vector<Item>> items = parse_items(
      {user("a"), user("b"), call("c", "f"), {{"role", "user"}, {"content", "c"}, {"id", "mine"}}}, "input");
  ASSERT_TRUE(items.ok());
  assign_ids(*items);
  std::set<std::string> ids;
  for (const Item& item : *items) ids.insert(item["id"].get<std::string>());
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_TRUE(ids.contains("mine"));
  EXPECT_TRUE((*items)[0]["id"].get<std::string>().starts_with("msg_"));
  EXPECT_TRUE((*items)[2]["id"].get<std::string>().starts_with("fc_"));
  const Result<std::vector<Item>> back = from_stored(to_stored(*items));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value(), *items);
  EXPECT_EQ(from_stored({{.id = "x", .json = "{"}}).status().code(), StatusCode::kDataLoss);
}

TEST(Items, AnOutputsIdTellsItsResponse) {
  const std::string response = random_id("resp_");
  EXPECT_EQ(response_of_item(output_item_id("msg_", response, 0)), response);
  EXPECT_EQ(response_of_item(output_item_id("fc_", response, 70'000)), response);
  for (const char* other : {"", "msg_", "mine", "msg_0123", "msg_zz0123456789abcdef0123456789abcdef0000"})
    EXPECT_EQ(response_of_item(other), "") << other;
  EXPECT_EQ(response_of_item(random_id("msg_")), "");
}

TEST(Items, ResultsBelongToCallsBeforeThem) {
  const auto items = [](const Json& list) { return parse_items(list, "input").value(); };
  const Json call = {{"type", "function_call"}, {"call_id", "c1"}, {"name", "f"}, {"arguments", "{}"}};
  const Json result = {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "5"}};
  EXPECT_TRUE(check_call_outputs(items(Json::array({call, result})), {}, "input").ok());
  EXPECT_TRUE(check_call_outputs(items(Json::array({result})), items(Json::array({call})), "input").ok());
  EXPECT_EQ(check_call_outputs(items(Json::array({result})), {}, "input").field(), "input[0].call_id");
  const Status early = check_call_outputs(items(Json::array({user("x"), result, call})), {}, "input");
  EXPECT_EQ(early.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(early.field(), "input[1].call_id");
  EXPECT_EQ(early.message(), "expected the call_id of a function_call before it; got 'c1'");
}

TEST(Items, AResultNamesItsCall) {
  refused_item({{"type", "function_call_output"}, {"call_id", ""}, {"output", "5"}}, "input[0].call_id",
               "is required");
}

constexpr std::uint64_t kNoLimit = UINT64_MAX;

TEST(Items, ReferencesAreResolvedOrNamed) {
  Result<std::vector<Item>> known =
      parse_items({{{"role", "user"}, {"content", "a"}, {"id", "msg_a"}}}, "input");
  Result<std::vector<Item>> items = parse_items({{{"id", "msg_a"}}, user("b")}, "input");
  ASSERT_TRUE(known.ok() && items.ok()) << items.status().to_string();
  ASSERT_TRUE(resolve_references(*items, *known, kNoLimit, "input").ok());
  EXPECT_EQ((*items)[0], (*known)[0]);
  Result<std::vector<Item>> other = parse_items({{{"type", "item_reference"}, {"id", "msg_b"}}}, "input");
  ASSERT_TRUE(other.ok());
  const Status status = resolve_references(*other, *known, kNoLimit, "input");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.field(), "input[0].id");
}

// Each is looked up, and not looked for among all.
TEST(Items, ManyReferencesToALongHistory) {
  constexpr std::size_t kItems = 50'000;
  std::vector<Item> known, items;
  for (std::size_t i = 0; i < kItems; ++i) {
    known.push_back({{"type", "message"}, {"id", "msg_" + std::to_string(i)}});
    items.push_back({{"type", "item_reference"}, {"id", "msg_" + std::to_string(kItems - 1 - i % 10)}});
  }
  ASSERT_TRUE(resolve_references(items, known, kNoLimit, "input").ok());
  EXPECT_EQ(items[0], known[kItems - 1]);
  EXPECT_EQ(items[kItems - 1], known[kItems - 10]);
}

// A short reference brings along a long item as often as it is named.
TEST(Items, ReferencesBringABoundedNumberOfBytes) {
  const std::vector<Item> known = {
      {{"type", "message"}, {"id", "msg_a"}, {"content", std::string(9'000, 'x')}}};
  const std::vector<Item> input(3, {{"type", "item_reference"}, {"id", "msg_a"}});
  const std::vector<StoredItem> stored = to_stored(known);
  const std::uint64_t bytes = stored[0].id.size() + stored[0].json.size() + 64;
  std::vector<Item> items = input;
  const Status status = resolve_references(items, known, 3 * bytes - 1, "input");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.field(), "input[2].id");
  EXPECT_EQ(items, input) << "nothing was copied";
  EXPECT_TRUE(resolve_references(items, known, 3 * bytes, "input").ok());
  EXPECT_EQ(items, std::vector<Item>(3, known[0]));
}

}  // namespace
}  // namespace loci
