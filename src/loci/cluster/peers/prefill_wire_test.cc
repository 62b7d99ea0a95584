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
              PromptNames{.chunks = {4, 8}, .chunk_bytes = 256, .bytes = 600, .ends = {12}, .tenant = 99})};
}

TEST(PrefillWire, WhatIsWrittenIsReadBack) {
  const Result<PrefillWork> read = read_prefill(write_prefill(some_work()));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->tenant, "acme");
  EXPECT_EQ(read->salt, "pepper");
  EXPECT_EQ(read->weight, 3u);
  EXPECT_EQ(read->queued_max, 17u);
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
  work = some_work();
  work.tokens.clear();
  EXPECT_EQ(read_prefill(write_prefill(work)).status().field(), "tokens");
}

}  // namespace
}  // namespace loci
