// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/final_message.h"

#include <gtest/gtest.h>

#include <string>

namespace loci {
namespace {

constexpr TokenId kEnd(7);

// The message's text with its mark, as a template gets it.
std::string marked(const std::string& text) {
  Conversation conversation;
  conversation.messages = {{.role = Role::kUser, .content = "Hi"},
                           {.role = Role::kAssistant, .content = text}};
  mark_final_message(conversation);
  EXPECT_EQ(conversation.messages[0].content, "Hi");
  return conversation.messages[1].content;
}

std::string trimmed(std::string text) {
  text.resize(text.find_last_not_of(" \n") + 1);
  return text;
}

// The text that is left of the last segment.
std::string cut(const std::string& text, const std::string& rendered) {
  std::vector<ChatSegment> segments = {{"user\nHi", kEnd}, {rendered, kEnd}, {"\n", {}}};
  EXPECT_TRUE(cut_at_mark(text, segments).ok());
  EXPECT_EQ(segments.size(), 2u);
  EXPECT_FALSE(segments.back().control.has_value());
  EXPECT_EQ(segments.front().control, kEnd);
  return segments.back().text;
}

TEST(FinalMessage, EndsThePrompt) {
  for (const std::string text : {"Once upon", "Once upon ", " Once\n\n", ""}) {
    EXPECT_EQ(cut(text, "assistant\n" + marked(text)), "assistant\n" + text);
    EXPECT_EQ(cut(text, "assistant\n" + marked(text) + "</s>\n"), "assistant\n" + text);
  }
}

TEST(FinalMessage, OfATemplateThatTrimsEndsAsTrimmed) {
  EXPECT_EQ(cut("Once upon ", "assistant\n" + trimmed(marked("Once upon "))), "assistant\nOnce upon");
  EXPECT_EQ(cut("Once upon", "assistant\n" + trimmed(marked("Once upon")) + "</s>"), "assistant\nOnce upon");
  // The line end is the template's.
  EXPECT_EQ(cut("", "assistant\n" + trimmed(marked(""))), "assistant\n");
}

TEST(FinalMessage, MaySpellTheMark) {
  const std::string text = marked("Once") + "upon";
  EXPECT_EQ(cut(text, "assistant\n" + marked(text)), "assistant\n" + text);
}

TEST(FinalMessage, ThatATemplateDoesNotWriteIsRefused) {
  std::vector<ChatSegment> segments = {{"user\nHi", kEnd}, {"assistant\n", {}}};
  const Status status = cut_at_mark("Once", segments);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(segments.size(), 2u);
}

}  // namespace
}  // namespace loci
