// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/chat_history.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

// "system text" and so on.
std::vector<std::string> said(const nlohmann::json& messages) {
  std::vector<std::string> out;
  for (const nlohmann::json& message : messages)
    out.push_back(message["role"].get<std::string>() + " " + message["content"].get<std::string>());
  return out;
}
using Said = std::vector<std::string>;

void talk(ChatHistory& history, const std::string& question) {
  history.ask(question);
  history.answer("re " + question);
}

TEST(ChatHistory, TurnsAreAskedAndAnswered) {
  ChatHistory history("Be brief.");
  EXPECT_EQ(history.turns(), 0u);
  talk(history, "a");
  EXPECT_EQ(history.turns(), 1u);
  EXPECT_EQ(said(history.messages()), (Said{"system Be brief.", "user a", "assistant re a"}));
  history.restart();
  EXPECT_EQ(said(history.messages()), Said{"system Be brief."});
  history.restart("");
  EXPECT_EQ(said(history.messages()), Said{});
}

TEST(ChatHistory, AQuestionWithoutAReplyIsTakenBack) {
  ChatHistory history("");
  talk(history, "a");
  history.ask("b");
  history.give_up();
  EXPECT_EQ(said(history.messages()), (Said{"user a", "assistant re a"}));
}

TEST(ChatHistory, AReplyStaysUntilAnotherOneIsThere) {
  ChatHistory history("");
  EXPECT_FALSE(history.ask_again()) << "nothing was said";
  talk(history, "a");
  ASSERT_TRUE(history.ask_again());
  EXPECT_TRUE(history.asks_again());
  EXPECT_EQ(said(history.messages()), Said{"user a"});
  history.give_up();
  EXPECT_FALSE(history.asks_again());
  EXPECT_EQ(said(history.messages()), (Said{"user a", "assistant re a"}));
  ASSERT_TRUE(history.ask_again());
  history.answer("other");
  EXPECT_EQ(said(history.messages()), (Said{"user a", "assistant other"}));
  history.ask("b");
  history.give_up();
  EXPECT_EQ(said(history.messages()), (Said{"user a", "assistant other"}))
      << "the reply that was replaced does not come back";
}

TEST(ChatHistory, ForksGoBackAndOn) {
  ChatHistory history("");
  talk(history, "a");
  talk(history, "b");
  EXPECT_FALSE(history.fork(0));
  EXPECT_FALSE(history.fork(3));
  ASSERT_TRUE(history.fork(1));
  talk(history, "c");
  EXPECT_EQ(history.forks(), 1u);
  EXPECT_EQ(said(history.fork_messages(1)), (Said{"user a", "assistant re a", "user b", "assistant re b"}));
  EXPECT_FALSE(history.go_to(0));
  EXPECT_FALSE(history.go_to(2));
  ASSERT_TRUE(history.go_to(1));
  EXPECT_EQ(said(history.messages()), (Said{"user a", "assistant re a", "user b", "assistant re b"}));
  EXPECT_EQ(said(history.fork_messages(1)), (Said{"user a", "assistant re a", "user c", "assistant re c"}));
}

TEST(ChatHistory, AForkHasItsOwnSystemsMessage) {
  ChatHistory history("");
  talk(history, "a");
  ASSERT_TRUE(history.fork(1));
  history.restart("Be brief.");
  talk(history, "b");
  ASSERT_TRUE(history.go_to(1));
  EXPECT_EQ(history.turns(), 1u);
  EXPECT_FALSE(history.fork(2));
  ASSERT_TRUE(history.fork(1));
  EXPECT_EQ(said(history.messages()), Said{});
  EXPECT_FALSE(history.fork(1)) << "no turn is left";
  history.restart();
  EXPECT_EQ(said(history.messages()), Said{}) << "this conversation has no system's message";
  ASSERT_TRUE(history.go_to(1));
  ASSERT_TRUE(history.fork(1));
  EXPECT_EQ(said(history.messages()), Said{"system Be brief."});
}

}  // namespace
}  // namespace loci
