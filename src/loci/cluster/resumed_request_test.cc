// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/resumed_request.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

constexpr ReplyKey kKey{1};

HttpRequest request_of(const std::string& header_line, std::string body) {
  const std::size_t colon = header_line.find(": ");
  HttpRequest out{
      .method = boost::beast::http::verb::post, .method_text = "POST", .target = "/v1/completions"};
  out.headers.emplace_back(header_line.substr(0, colon),
                           header_line.substr(colon + 2, header_line.size() - colon - 4));
  out.body = std::move(body);
  return out;
}

TEST(ResumedRequest, WhatAFrontSaysIsTakenOut) {
  const ResumedReply resumed{
      .name = random_reply_name(), .created_at = 1'700'000'000, .is_again = true, .was_lost = true};
  const HttpRequest plain{.method_text = "POST", .target = "/v1/completions"};
  const std::string said = write_said(5, {{TokenId(1), TokenId(2)}});
  HttpRequest request = request_of(reply_header(kKey, plain, resumed, said), "{}" + said);
  const auto taken = take_resumed_reply(kKey, request);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->name, resumed.name);
  EXPECT_EQ(taken->name.size(), kReplyNameDigits);
  EXPECT_EQ(taken->created_at, resumed.created_at);
  EXPECT_TRUE(taken->is_again && taken->was_lost);
  EXPECT_EQ(taken->prompts, 5u);
  EXPECT_EQ(taken->said, (std::vector<std::vector<TokenId>>{{TokenId(1), TokenId(2)}}));
  EXPECT_EQ(request.body, "{}");

  HttpRequest first =
      request_of(reply_header(kKey, plain, {.name = resumed.name, .created_at = 7}, ""), "{}");
  const auto named = take_resumed_reply(kKey, first);
  ASSERT_TRUE(named);
  EXPECT_FALSE(named->is_again);
  EXPECT_TRUE(named->said.empty());
  EXPECT_EQ(first.body, "{}");
}

// A limit is asked for before the body is read.
TEST(ResumedRequest, TheHeaderAloneSaysThatARequestWasLost) {
  const HttpRequest plain{.method_text = "POST", .target = "/v1/completions"};
  constexpr std::int64_t kNow = 1'700'000'000;
  ResumedReply reply{.name = random_reply_name(), .created_at = kNow - 60};
  const auto header = [&] { return reply_header(kKey, plain, reply, std::string(100, 'x')); };
  const auto is_lost = [](const HttpRequest& request, std::uint8_t key = 1) {
    return LostReplies(ReplyKey{key}).take(request, kNow);
  };
  EXPECT_FALSE(is_lost(request_of(header(), "")));
  reply.is_again = true;
  EXPECT_FALSE(is_lost(request_of(header(), ""))) << "another one was asked, and had not begun";
  reply.was_lost = true;
  EXPECT_TRUE(is_lost(request_of(header(), "")));
  EXPECT_FALSE(is_lost(request_of(header(), ""), 2));
  HttpRequest other = request_of(header(), "");
  other.target = "/v1/responses";
  EXPECT_FALSE(is_lost(other));
  EXPECT_FALSE(is_lost(plain));
}

// Who has seen a header between a front and an instance could send it with every request.
TEST(ResumedRequest, ACopiedHeaderLiftsNoLimit) {
  constexpr std::int64_t kNow = 1'700'000'000;
  HttpRequest plain{.method_text = "POST", .target = "/v1/completions"};
  plain.headers.emplace_back("Authorization", "Bearer ann");
  ResumedReply reply{.name = random_reply_name(), .created_at = kNow, .is_again = true, .was_lost = true};
  const auto request = [&](const char* key) {
    HttpRequest out = request_of(reply_header(kKey, plain, reply, ""), "{}");
    if (key != nullptr) out.headers.emplace_back("Authorization", key);
    return out;
  };
  LostReplies replies(kKey);
  EXPECT_FALSE(replies.take(request("Bearer bob"), kNow)) << "another tenant's";
  EXPECT_FALSE(replies.take(request(nullptr), kNow));
  HttpRequest others = request("Bearer bob");
  EXPECT_FALSE(take_resumed_reply(kKey, others).has_value());
  EXPECT_TRUE(replies.take(request("Bearer ann"), kNow));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(replies.take(request("Bearer ann"), kNow)) << "again";
  HttpRequest again = request("Bearer ann");
  EXPECT_TRUE(take_resumed_reply(kKey, again).has_value()) << "its reply goes on, within the limits";
  // An old one lifts none at an instance that has just started, either.
  EXPECT_FALSE(LostReplies(kKey).take(request("Bearer ann"), kNow + kLostBelievedSeconds + 1));
  EXPECT_TRUE(LostReplies(kKey).take(request("Bearer ann"), kNow + kLostBelievedSeconds));
  // Others do, and as many names as are remembered.
  for (std::size_t i = 0; i < LostReplies::kNamesMax; ++i) {
    reply.name = random_reply_name();
    ASSERT_TRUE(replies.take(request("Bearer ann"), kNow));
    ASSERT_FALSE(replies.take(request("Bearer ann"), kNow));
  }
}

TEST(ResumedRequest, NobodyWithoutTheKeyIsBelieved) {
  const HttpRequest plain{.method_text = "POST", .target = "/v1/completions"};
  const std::string said = write_said(5, {{TokenId(1)}});
  const std::string header = reply_header(kKey, plain, {.name = random_reply_name(), .created_at = 7}, said);
  const auto is_believed = [](const ReplyKey& key, HttpRequest request) {
    const std::string body = request.body;
    const bool is_taken = take_resumed_reply(key, request).has_value();
    if (!is_taken) {
      EXPECT_EQ(request.body, body);
    }
    return is_taken;
  };
  ASSERT_TRUE(is_believed(kKey, request_of(header, "{}" + said)));
  EXPECT_FALSE(is_believed(ReplyKey{2}, request_of(header, "{}" + said)));
  EXPECT_FALSE(is_believed(kKey, request_of(header, "{}" + write_said(5, {{TokenId(2)}}))));
  EXPECT_FALSE(is_believed(kKey, request_of(header, "x")));  // shorter than what is said to be there
  HttpRequest elsewhere = request_of(header, "{}" + said);
  elsewhere.target = "/v1/responses";
  EXPECT_FALSE(is_believed(kKey, std::move(elsewhere)));
  for (const char* wrong : {"Loci-Reply: \r\n", "Loci-Reply: a b c\r\n", "Loci-Reply: a 1 0 0 0 x\r\n",
                            "Loci-Reply: a 1 0 -1 x\r\n", "Loci-Reply: a 1 0 0 \r\n"})
    EXPECT_FALSE(is_believed(kKey, request_of(wrong, "{}"))) << wrong;
}

}  // namespace
}  // namespace loci
