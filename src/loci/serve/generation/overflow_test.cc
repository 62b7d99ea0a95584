// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/overflow.h"

#include <gtest/gtest.h>

#include "loci/serve/history/history_testing.h"

namespace loci {
namespace {

std::uint32_t front_of(const TestText& text, const Messages& messages) {
  const std::string context = context_of(messages);
  const Tokens prompt = std::move(text.chat.encode(context)).value();
  return system_prompt_tokens(text.chat, context, prompt);
}

std::size_t tokens_in(const TestText& text, std::string_view rendered) {
  return text.tokenizer.encode(rendered, ControlText::kAsControl).value().size();
}

TEST(OverflowTest, TheSystemPromptReachesToWhatWasSaidFirst) {
  const TestText text = byte_level_text();
  const std::uint32_t front =
      front_of(text, {{"system", "Be brief."}, {"user", "hello"}, {"assistant", "hi"}, {"user", "and now?"}});
  EXPECT_EQ(front, tokens_in(text, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"));
  // It does not depend on what follows, so no turn moves it.
  EXPECT_EQ(front_of(text, {{"system", "Be brief."}, {"user", "hello"}}), front);
  EXPECT_EQ(front_of(text, {{"user", "hello"}}), tokens_in(text, "<|im_start|>user\n"));
}

TEST(OverflowTest, ATemplateThatRefusesAnEmptyChatLeavesNoFront) {
  const TestText text = byte_level_text(
      "{% if messages[-1].content == '' %}{{ raise_exception('say something') }}{% endif %}"
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  EXPECT_EQ(front_of(text, {{"system", "Be brief."}, {"user", "hello"}}), 0u);
  EXPECT_EQ(system_prompt_tokens(text.chat, "no JSON", {TokenId(1)}), 0u);
}

TEST(OverflowTest, LeavesOutTheCuts) {
  Tokens prompt;
  for (std::uint32_t i = 0; i < 8; ++i) prompt.emplace_back(i);
  EXPECT_EQ(without(prompt, {}), prompt);
  EXPECT_EQ(tokens_of({}), 0u);
  const std::vector<TokenRange> cuts = {{1, 3}, {3, 6}};
  EXPECT_EQ(without(prompt, cuts), (Tokens{TokenId(0), TokenId(6), TokenId(7)}));
  EXPECT_EQ(tokens_of(cuts), 5u);
}

}  // namespace
}  // namespace loci
