// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/handed_prompt.h"

#include <gtest/gtest.h>

#include "loci/cluster/resumed_request.h"

namespace loci {
namespace {

constexpr PrefillKey kSealKey{1};
const PrefillPlace kNamedPlace{.host = "fe80::1",
                               .port = 7000,
                               .begin_limit = 1'500 * kNanosPerMilli,
                               .silence_limit = 400 * kNanosPerMilli};

HttpRequest request_naming(std::string_view line, std::string reply = "name 1 0 0 seal") {
  HttpRequest out{.method_text = "POST", .target = "/v1/completions"};
  const std::size_t colon = line.find(": ");
  out.headers.emplace_back(line.substr(0, colon), line.substr(colon + 2, line.size() - colon - 4));
  out.headers.emplace_back(std::string(kReplyHeader), std::move(reply));
  return out;
}

std::string line_for(const PrefillPlace& place) {
  return prefill_header(kSealKey, {.method_text = "POST", .target = "/v1/completions"}, place,
                        "name 1 0 0 seal");
}

TEST(HandedPrompt, AnInstanceReadsWhatAFrontSays) {
  const std::optional<PrefillPlace> place =
      read_prefill_header(kSealKey, request_naming(line_for(kNamedPlace)));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->host, kNamedPlace.host);
  EXPECT_EQ(place->port, kNamedPlace.port);
  EXPECT_EQ(place->begin_limit, kNamedPlace.begin_limit);
  EXPECT_EQ(place->silence_limit, kNamedPlace.silence_limit);
}

TEST(HandedPrompt, WhatIsNotSealedForThisRequestIsNotLookedAt) {
  const std::string line = line_for(kNamedPlace);
  ASSERT_TRUE(read_prefill_header(kSealKey, request_naming(line)));
  EXPECT_FALSE(read_prefill_header(PrefillKey{2}, request_naming(line)));
  EXPECT_FALSE(read_prefill_header(kSealKey, request_naming(line, "other 1 0 0 seal"))) << "of another reply";
  HttpRequest elsewhere = request_naming(line);
  elsewhere.target = "/v1/responses";
  EXPECT_FALSE(read_prefill_header(kSealKey, elsewhere));
  std::string changed = line;
  changed.replace(changed.find("7000"), 4, "7001");
  EXPECT_FALSE(read_prefill_header(kSealKey, request_naming(changed)));
  for (const char* wrong : {"Loci-Prefill: \r\n", "Loci-Prefill: a b\r\n", "Loci-Prefill: a 1 1 300 \r\n"})
    EXPECT_FALSE(read_prefill_header(kSealKey, request_naming(wrong))) << wrong;
  EXPECT_FALSE(
      read_prefill_header(kSealKey, HttpRequest{.method_text = "POST", .target = "/v1/completions"}));
}

TEST(HandedPrompt, NobodyWaitsForLongerThanTheBound) {
  EXPECT_TRUE(read_prefill_header(
      kSealKey,
      request_naming(line_for(
          {.host = "a", .port = 1, .begin_limit = kPrefillLimitMax, .silence_limit = kPrefillSilenceMax}))));
  EXPECT_FALSE(read_prefill_header(kSealKey,
                                   request_naming(line_for({.host = "a",
                                                            .port = 1,
                                                            .begin_limit = kPrefillLimitMax + kNanosPerSecond,
                                                            .silence_limit = kPrefillSilenceMax}))));
  for (const Nanos silence : {kPrefillSilenceMin, kPrefillSilenceMax})
    EXPECT_TRUE(read_prefill_header(
        kSealKey, request_naming(line_for({.host = "a", .port = 1, .silence_limit = silence}))));
  for (const Nanos silence : {kPrefillSilenceMin - kNanosPerMilli, kPrefillSilenceMax + kNanosPerMilli})
    EXPECT_FALSE(read_prefill_header(
        kSealKey, request_naming(line_for({.host = "a", .port = 1, .silence_limit = silence}))));
}

}  // namespace
}  // namespace loci
