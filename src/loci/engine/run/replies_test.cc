// SPDX-License-Identifier: Apache-2.0
// What listeners are told, without a core or a backend: the plans are written by hand.
#include "loci/engine/run/replies.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace loci {
namespace {

constexpr std::uint32_t kTokens = 16;  // of the vocabulary

// What each listener was told, as text: "a7" is token 7 of a.
class RepliesTest : public testing::Test {
 protected:
  void begin(Replies& replies, std::uint64_t id, const std::string& name, SamplingParams params = {},
             std::uint32_t prompt = 3) {
    Submission submission;
    submission.tells_computed = tells_computed_;
    submission.arrival.request = RequestId(id);
    submission.arrival.prompt.assign(prompt, TokenId(1));
    submission.arrival.dropped = dropped_;
    submission.sampler =
        std::make_shared<Sampler>(params, submission.arrival.prompt, std::vector<TokenId>{}, kTokens);
    submission.listener = [this, name](const GenerationEvent& event) {
      if (const auto* token = std::get_if<GeneratedToken>(&event))
        told_.push_back(name + std::to_string(token->token.value));
      else if (const auto* computed = std::get_if<PromptComputed>(&event))
        told_.push_back(name + " has " + std::to_string(computed->tokens));
      else
        told_.push_back(name + (std::holds_alternative<GenerationEnded>(event) ? " ends" : " starts"));
      if (const auto* ended = std::get_if<GenerationEnded>(&event)) end_ = *ended;
    };
    replies.begin(submission);
  }
  // A plan whose pass computes one token of each request, at position `position`, and samples.
  static Plan plan_of(const std::vector<std::uint64_t>& requests, std::uint32_t position = 2) {
    Plan plan;
    plan.pass.emplace();
    for (const std::uint64_t request : requests) {
      Span& span = plan.pass->spans.emplace_back();
      span.tokens = {TokenId(1)};
      span.position = position;
      plan.spans.push_back({RequestId(request), true});
    }
    return plan;
  }
  static std::optional<Sampled> sampled(std::uint32_t token, float logprob) {
    Sampled out{.token = TokenId(token)};
    out.chosen.logprob = logprob;
    return out;
  }
  void deliver(Replies& replies) {
    for (const Delivery& delivery : replies.take()) (*delivery.listener)(delivery.event);
  }

  std::vector<TokenRange> dropped_;
  bool tells_computed_ = false;
  std::vector<std::string> told_;
  GenerationEnded end_;
};

using Told = std::vector<std::string>;

// The core counts a prompt when it says where it came from, and a prompt with several replies for each of
// them.
TEST_F(RepliesTest, APromptThatIsThereAlreadyIsTakenOutOfTheTotalsOnceTheyHaveIt) {
  Replies replies(false);
  Submission submission;
  submission.arrival.request = RequestId(1);
  submission.arrival.prompt.assign(3, TokenId(1));
  submission.repeats_prompt = true;
  submission.sampler =
      std::make_shared<Sampler>(SamplingParams{}, submission.arrival.prompt, std::vector<TokenId>{}, kTokens);
  submission.listener = [](const GenerationEvent&) {};
  replies.begin(submission);
  ContextSources found, came;
  found.device = 3;
  came.device = 1;
  came.computed[0] = 2;
  CoreStats stats;
  stats.tokens_prompt_total = stats.tokens_cached_total = 10;
  replies.tell({Started{RequestId(1), 3, found}});
  replies.correct(stats);
  EXPECT_EQ(stats.tokens_prompt_total, 10u);
  EXPECT_EQ(stats.tokens_cached_total, 10u);
  replies.tell({Restored{RequestId(1), came}});
  replies.correct(stats);
  EXPECT_EQ(stats.tokens_prompt_total, 7u);
  EXPECT_EQ(stats.tokens_cached_total, 9u);
}

// What waits, and what is refused, has no mask made.
TEST_F(RepliesTest, SamplersBeginWhenTheirRequestsAreAdmitted) {
  Replies replies(false);
  for (std::uint64_t id = 1; id <= 3; ++id) begin(replies, id, "a");
  EXPECT_TRUE(replies.take_begun().empty());
  Plan plan = plan_of({2});
  const PassJob job = replies.make_job(plan);
  replies.tell({Started{RequestId(2), 0, {}}});
  EXPECT_EQ(replies.take_begun(), std::vector{job.samplers.at(0)});
  EXPECT_TRUE(replies.take_begun().empty()) << "once";
}

// Each finds its own log-probabilities, also if the core speaks of them in another order.
TEST_F(RepliesTest, TokensFindTheirPlacesInThePass) {
  Replies replies(false);
  std::vector<std::uint64_t> requests;
  std::vector<std::optional<Sampled>> of_pass;
  for (std::uint64_t id = 1; id <= 6; ++id) {
    begin(replies, id, std::string(1, static_cast<char>('a' + id)));
    requests.push_back(id);
    of_pass.push_back(sampled(static_cast<std::uint32_t>(id), 0));
  }
  Plan plan = plan_of(requests);
  replies.make_job(plan);
  replies.end_pass(std::move(of_pass));
  std::vector<Output> outputs;
  for (const std::uint64_t id : {4u, 5u, 2u, 6u, 1u, 3u})
    outputs.push_back(TokenSampled{RequestId(id), TokenId(static_cast<std::uint32_t>(id))});
  replies.tell(outputs);
  deliver(replies);
  EXPECT_EQ(told_, (Told{"e4", "f5", "c2", "g6", "b1", "d3"}));
}

TEST_F(RepliesTest, AreToldInTheOrderInWhichTheCoreSpeaks) {
  Replies replies(false);
  begin(replies, 1, "a");
  begin(replies, 2, "b");
  Plan plan = plan_of({1, 2});
  replies.tell({Started{RequestId(1), 0, {}}, Started{RequestId(2), 0, {}}});
  const PassJob job = replies.make_job(plan);
  EXPECT_EQ(job.requests, (std::vector{RequestId(1), RequestId(2)}));
  ASSERT_EQ(job.samplers.size(), 2u);
  EXPECT_TRUE(job.samplers[0] && job.samplers[1] && job.samplers[0] != job.samplers[1]);
  replies.end_pass({sampled(7, -1.0f), sampled(8, -2.0f)});
  replies.tell({TokenSampled{RequestId(2), TokenId(8)}, Finished{RequestId(2), FinishReason::kLength, {}},
                TokenSampled{RequestId(1), TokenId(7)}});
  deliver(replies);
  EXPECT_EQ(told_, (Told{"a starts", "b starts", "b8", "b ends", "a7"}));
  EXPECT_EQ(end_.reason, FinishReason::kLength);
  EXPECT_TRUE(end_.status.ok());
  EXPECT_FALSE(replies.contains(RequestId(2)));
  EXPECT_TRUE(replies.contains(RequestId(1)));
  EXPECT_TRUE(replies.take().empty()) << "each is told once";
}

TEST_F(RepliesTest, WhoWantsToKnowIsToldHowFarItsPromptIsComputed) {
  Replies replies(false);
  tells_computed_ = true;
  begin(replies, 1, "a", {}, 8);
  tells_computed_ = false;
  begin(replies, 2, "b", {}, 8);
  const auto part = [](std::uint32_t position) {
    Plan plan = plan_of({1, 2}, position);
    for (SpanPlan& span : plan.spans) span.sample = false;
    plan.pass->spans[0].tokens.assign(3, TokenId(1));
    return plan;
  };
  Plan first = part(0), ahead = part(3), last = plan_of({1}, 7);
  replies.make_job(first);
  replies.make_job(ahead);
  replies.end_pass({std::nullopt, std::nullopt});
  deliver(replies);
  EXPECT_EQ(told_, (Told{"a has 3"}));
  replies.make_job(last);
  replies.end_pass({std::nullopt, std::nullopt});
  replies.end_pass({sampled(7, -1.0f)});
  replies.tell({TokenSampled{RequestId(1), TokenId(7)}});
  deliver(replies);
  EXPECT_EQ(told_, (Told{"a has 3", "a has 6", "a7"})) << "of its end the token tells";
}

// Its passes may end after it.
TEST_F(RepliesTest, NobodyIsToldOfAPromptThatHasEnded) {
  Replies replies(false);
  tells_computed_ = true;
  begin(replies, 1, "a", {}, 8);
  Plan plan = plan_of({1}, 0);
  plan.spans[0].sample = false;
  replies.make_job(plan);
  replies.tell({Finished{RequestId(1), FinishReason::kCancelled, {}}});
  replies.end_pass({std::nullopt});
  deliver(replies);
  EXPECT_EQ(told_, (Told{"a ends"}));
}

TEST_F(RepliesTest, ATokenHasTheLogProbabilitiesOfItsOwnSpanAndPass) {
  Replies replies(false);
  begin(replies, 1, "a");
  begin(replies, 2, "b");
  Plan first = plan_of({1, 2}), ahead = plan_of({2});
  EXPECT_FALSE(replies.make_job(first).ahead);
  EXPECT_TRUE(replies.make_job(ahead).ahead) << "the first pass has not ended";
  replies.end_pass({sampled(7, -1.0f), sampled(7, -2.0f)});
  replies.tell({TokenSampled{RequestId(2), TokenId(7)}});
  std::vector<Delivery> told = replies.take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(std::get<GeneratedToken>(told[0].event).chosen.logprob, -2.0f);
  replies.end_pass({sampled(9, -3.0f)});
  EXPECT_DEATH(replies.tell({TokenSampled{RequestId(2), TokenId(7)}}), "the token that was sampled");
  replies.tell({TokenSampled{RequestId(2), TokenId(9)}});
  told = replies.take();
  EXPECT_EQ(std::get<GeneratedToken>(told.at(0).event).chosen.logprob, -3.0f);
}

// The host has no sampler to run for what the device samples; the number of the draw is the place in the
// reply, without what was dropped of the prompt.
TEST_F(RepliesTest, WhatTheDeviceSamplesTheHostDoesNot) {
  SamplingParams asks_for_more;
  asks_for_more.logprobs = true;
  dropped_ = {{1, 3}};
  for (const bool device_samples : {false, true}) {
    Replies replies(device_samples);
    begin(replies, 1, "a", {}, 6);
    begin(replies, 2, "b", asks_for_more, 6);
    Plan plan = plan_of({1, 2}, 8);
    const PassJob job = replies.make_job(plan);
    EXPECT_EQ(job.samplers[0] == nullptr, device_samples);
    EXPECT_EQ(job.pass.spans[0].sampling.has_value(), device_samples);
    EXPECT_NE(job.samplers[1], nullptr) << "log probabilities are the host's";
    EXPECT_FALSE(job.pass.spans[1].sampling.has_value());
    if (device_samples) {
      EXPECT_EQ(job.pass.spans[0].sampling->draw, 5u) << "token 8 of a prompt of 4 is behind 5 of the reply";
    }
  }
}

TEST_F(RepliesTest, AnEndForALostDeviceSaysSo) {
  Replies replies(false);
  for (std::uint64_t id = 1; id <= 4; ++id) begin(replies, id, std::string(1, static_cast<char>('`' + id)));
  replies.lose_device(Status(StatusCode::kUnavailable, "the first"));
  replies.lose_device(Status(StatusCode::kUnavailable, "the second"));
  const auto end_of = [&](const Output& output) {
    replies.tell({output});
    deliver(replies);
    return end_;
  };
  const GenerationEnded late = end_of(Finished{RequestId(1), FinishReason::kDeadline, {}});
  EXPECT_EQ(late.reason, FinishReason::kFailed);
  EXPECT_EQ(late.status.message(), replies.lost().message());
  EXPECT_NE(late.status.message().find("the first"), std::string::npos);
  EXPECT_TRUE(end_of(Finished{RequestId(2), FinishReason::kStop, {}}).status.ok()) << "it was done before";
  EXPECT_EQ(end_of(Rejected{RequestId(3), Status(StatusCode::kUnavailable, "draining"), 0}).status.message(),
            replies.lost().message());
  const GenerationEnded full = end_of(Rejected{RequestId(4), resource_exhausted("full"), 7});
  EXPECT_EQ(full.status.code(), StatusCode::kResourceExhausted) << "not for the device";
  EXPECT_EQ(full.retry_after, 7);
  EXPECT_TRUE(replies.empty());
}

}  // namespace
}  // namespace loci
