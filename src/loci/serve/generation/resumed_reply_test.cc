// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/resumed_reply.h"

#include <gtest/gtest.h>

#include <set>

#include "loci/serve/generation/prefill.h"

namespace loci {
namespace {

std::vector<TokenId> tokens(std::initializer_list<std::uint32_t> values) {
  std::vector<TokenId> out;
  for (const std::uint32_t value : values) out.emplace_back(value);
  return out;
}

TEST(ResumedReply, EventsAreComments) {
  const ReplyMark token{.kind = ReplyMark::Kind::kToken, .choice = 3, .number = 17};
  EXPECT_EQ(mark_event(token), ": loci-token 3 17\n\n");
  const auto read = read_mark_event(mark_event(token));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->choice, 3u);
  EXPECT_EQ(read->number, 17u);
  const auto prompts = read_mark_event(mark_event({.kind = ReplyMark::Kind::kPrompts, .number = UINT64_MAX}));
  ASSERT_TRUE(prompts);
  EXPECT_EQ(prompts->kind, ReplyMark::Kind::kPrompts);
  EXPECT_EQ(prompts->number, UINT64_MAX);
  for (const auto kind : {ReplyMark::Kind::kStopped, ReplyMark::Kind::kDrained})
    EXPECT_EQ(read_mark_event(mark_event({.kind = kind}))->kind, kind);
  EXPECT_TRUE(mark_event({.kind = ReplyMark::Kind::kDrained}).starts_with(": loci-stopped\n"))
      << "an earlier front reads the first line alone";
  const std::string late = mark_event(
      {.kind = ReplyMark::Kind::kPrefill, .number = static_cast<std::uint64_t>(PrefillEnd::kLate)});
  EXPECT_EQ(late, ": loci-prefill late\n\n");
  EXPECT_EQ(read_mark_event(late)->number, static_cast<std::uint64_t>(PrefillEnd::kLate));
  for (const char* other : {": loci-prefill soon\n\n", ": loci-token 3\n\n", ": loci-token x 1\n\n",
                            ": loci-token 1 4294967296\n\n", ": loci-later\n\n", ": loci-prompts -1\n\n"}) {
    EXPECT_TRUE(is_mark_event(other)) << other;
    EXPECT_FALSE(read_mark_event(other)) << other;
  }
  EXPECT_FALSE(is_mark_event("data: : loci-token 3 17\n\n"));
}

TEST(ResumedReply, SaidTokensAreReadBackAndHalfOnesAreNot) {
  const std::vector<std::vector<TokenId>> said = {tokens({1, 2, 4'000'000'000}), {}, tokens({7})};
  const std::string bytes = write_said(99, said);
  const auto read = read_said(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->prompts, 99u);
  EXPECT_EQ(read->said, said);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(read_said(std::string_view(bytes).substr(0, size))) << size;
  EXPECT_FALSE(read_said(bytes + "x"));
  std::string many = write_said(1, {});
  many[8] = many[9] = many[10] = many[11] = '\xff';  // so many choices are not there
  EXPECT_FALSE(read_said(many));
}

TEST(ResumedReply, WhatIsDrawnFollowsFromTheName) {
  const ResumedReply one{.name = "a"}, same{.name = "a"}, other{.name = "b"};
  EXPECT_EQ(one.drawn("seed", 3), same.drawn("seed", 3));
  EXPECT_EQ((std::set<std::uint64_t>{one.drawn("seed", 0), one.drawn("seed", 1), one.drawn("call", 0),
                                     other.drawn("seed", 0)}
                 .size()),
            4u);
  EXPECT_NE(prompts_name({tokens({1, 2}), tokens({3})}), prompts_name({tokens({1}), tokens({2, 3})}));
  EXPECT_NE(prompts_name({tokens({1})}), prompts_name({tokens({1}), {}}));
}

}  // namespace
}  // namespace loci
