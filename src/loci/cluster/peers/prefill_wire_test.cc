// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/prefill_wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace loci {
namespace {

PrefillWork some_work() {
  return {.tenant = "acme",
          .salt = "pepper",
          .weight = 3,
          .queued_max = 17,
          .tokens = {TokenId(1), TokenId(70'000)},
          .text = std::make_shared<const PromptNames>(
              PromptNames{.chunks = {4, 8}, .chunk_bytes = 256, .bytes = 600, .ends = {12}, .tenant = 99}),
          .pulse = 123 * kNanosPerMilli};
}

TEST(PrefillWire, WhatIsWrittenIsReadBack) {
  const Result<PrefillWork> read = read_prefill(write_prefill(some_work()));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->tenant, "acme");
  EXPECT_EQ(read->salt, "pepper");
  EXPECT_EQ(read->weight, 3u);
  EXPECT_EQ(read->queued_max, 17u);
  EXPECT_EQ(read->pulse, 123 * kNanosPerMilli);
  EXPECT_EQ(read->tokens, some_work().tokens);
  ASSERT_NE(read->text, nullptr);
  EXPECT_EQ(read->text->chunks, some_work().text->chunks);
  EXPECT_EQ(read->text->chunk_bytes, 256u);
  EXPECT_EQ(read->text->bytes, 600u);
  EXPECT_EQ(read->text->ends, some_work().text->ends);
  EXPECT_EQ(read->text->tenant, 99u);

  PrefillWork nameless = some_work();
  nameless.text = nullptr;
  EXPECT_EQ(read_prefill(write_prefill(nameless)).value().text, nullptr);
}

TEST(PrefillWire, WhatIsNotWholeOrTooLargeIsRefusedAndNamed) {
  const std::string whole = write_prefill(some_work());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_FALSE(read_prefill(std::string_view(whole).substr(0, bytes)).ok()) << bytes;
  EXPECT_FALSE(read_prefill(whole + "x").ok());
  // Places of the counts in the message.
  const std::pair<std::size_t, const char*> counts[] = {
      {8, "tenant"}, {12, "salt"}, {16, "tokens"}, {20, "chunks"}, {24, "ends"}};
  for (const auto& [place, field] : counts) {
    std::string wrong = whole;
    std::memset(wrong.data() + place, 0xff, 4);
    EXPECT_EQ(read_prefill(wrong).status().field(), field);
  }
  PrefillWork work = some_work();
  work.weight = 0;
  EXPECT_EQ(read_prefill(write_prefill(work)).status().field(), "weight");
  for (const Nanos pulse : {Nanos{0}, 99 * kNanosPerMilli, 1'001 * kNanosPerMilli}) {
    work = some_work();
    work.pulse = pulse;
    EXPECT_EQ(read_prefill(write_prefill(work)).status().field(), "pulse") << pulse;
  }
  work = some_work();
  work.tokens.clear();
  EXPECT_EQ(read_prefill(write_prefill(work)).status().field(), "tokens");
}

TEST(PrefillNews, LinesComeBackAndOthersAreNone) {
  using Says = PrefillNews::Says;
  for (const PrefillNews& news :
       {PrefillNews{}, PrefillNews{.says = Says::kComputes, .tokens = 512}, PrefillNews{.says = Says::kDone},
        PrefillNews{.says = Says::kDone, .tokens = UINT32_MAX}, PrefillNews{.says = Says::kRefused},
        PrefillNews{.says = Says::kBroke}, PrefillNews{.says = Says::kUnable}}) {
    const std::string line = write_prefill_news(news);
    EXPECT_LE(line.size(), kPrefillLineBytesMax);
    EXPECT_EQ(line.back(), '\n');
    EXPECT_EQ(read_prefill_news(std::string_view(line).substr(0, line.size() - 1)), news);
  }
  for (const char* line :
       {"", "x", "w ", "d", "d ", "d -1", "d 1x", "d 4294967296", "d  1", "dd", "c", "c1", "c x"})
    EXPECT_FALSE(read_prefill_news(line)) << line;
}

}  // namespace
}  // namespace loci
