// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/long_prompt.h"

#include <gtest/gtest.h>

#include <string>

#include "loci/serve/history/history_testing.h"

namespace loci {
namespace {

std::string repeated(std::string_view text, std::size_t bytes) {
  std::string out;
  while (out.size() + text.size() <= bytes) out += text;
  return out;
}

TEST(LongPrompt, WhatMayFitIsNotCounted) {
  const TestText text = byte_level_text();
  const std::string fits = repeated("hello ", 60 << 10);
  EXPECT_EQ(
      tokens_beyond(text.tokenizer, std::vector<std::string_view>{fits}, ControlText::kAsText, 100).value(),
      std::nullopt);
  EXPECT_EQ(tokens_beyond(text.tokenizer, {}, ControlText::kAsText, 100).value(), std::nullopt);
}

TEST(LongPrompt, ATextOfFewTokensIsNotRefusedForItsBytes) {
  const TestText text = byte_level_text();
  // Control tokens: one of each twelve bytes.
  const std::string controls = repeated("<|im_start|>", 1 << 20);
  const std::size_t tokens = text.tokenizer.encode(controls, ControlText::kAsControl).value().size();
  ASSERT_GT(controls.size(), 10 * tokens);
  const std::vector<std::string_view> texts = {controls};
  const auto beyond = [&](std::size_t most) {
    return tokens_beyond(text.tokenizer, texts, ControlText::kAsControl, most).value();
  };
  EXPECT_EQ(beyond(tokens), std::nullopt);
  EXPECT_EQ(beyond(tokens * 2 / 3), std::nullopt) << "cuts add some: only twice as many are surely too many";
  EXPECT_GT(beyond(tokens / 3).value_or(0), tokens / 3);
}

TEST(LongPrompt, OnlyTheBeginningIsTokenised) {
  const TestText text = byte_level_text();
  // Characters of three bytes, so that the first part would end within one; behind them what is not UTF-8,
  // which tokenising all of it would refuse.
  std::string words = repeated("\xe2\x82\xac", 1 << 20);
  ASSERT_NE((std::size_t{64} << 10) % 3, 0u);
  const std::size_t of_all = text.tokenizer.encode(words, ControlText::kAsText).value().size();
  words += "\xff";
  const std::vector<std::string_view> texts = {"hello", words};
  const auto found = tokens_beyond(text.tokenizer, texts, ControlText::kAsText, 100);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_GT(found->value_or(0), 200u);
  EXPECT_LT(found->value_or(0), of_all / 4);
}

}  // namespace
}  // namespace loci
