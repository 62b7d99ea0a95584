// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/resumed_stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "loci/serve/wire/sse.h"

namespace loci {
namespace {

using State = ResumedStream::State;

// An event of a choice.
std::string chunk(int choice, const std::string& delta) {
  return fmt::format(
      "data: "
      "{{\"id\":\"chatcmpl-1\",\"created\":5,\"model\":\"m\",\"choices\":[{{\"index\":{},\"delta\":{}}}]}}"
      "\n\n",
      choice, delta);
}
// What the instance tells of a choice.
std::string token(std::uint32_t choice, std::uint32_t value) {
  return mark_event({.choice = choice, .number = value});
}
std::string prompts(std::uint64_t name) {
  return mark_event({.kind = ReplyMark::Kind::kPrompts, .number = name});
}
const std::string kLast = "data: [DONE]\n\n";

TEST(ResumedStream, WhatWasSaidIsKeptBack) {
  ResumedStream stream(RoutedApi::kOpenAi);
  const std::string first = chunk(0, "\"It\"") + chunk(0, "\" was\"");
  EXPECT_EQ(stream.push(first).events, first);
  for (int times = 0; times < 2; ++times) {
    stream.begin_again();
    EXPECT_EQ(stream.push(chunk(0, "\"It\"")).events, "");
    EXPECT_FALSE(stream.has_caught_up());
    EXPECT_EQ(stream.push(chunk(0, "\" was\"")).events, "");
    EXPECT_TRUE(stream.has_caught_up());
  }
  const ResumedStream::Part rest = stream.push(chunk(0, "\" a\"") + kLast);
  EXPECT_EQ(rest.state, State::kGoesOn);
  EXPECT_EQ(rest.events, chunk(0, "\" a\"") + kLast);
}

// While a prompt is computed again the client hears that somebody is at work.
TEST(ResumedStream, CommentsArePassedOnAndCountedNowhere) {
  ResumedStream stream(RoutedApi::kOpenAi);
  const std::string comment(kSseComment), first = chunk(0, "\"It\"");
  EXPECT_EQ(stream.push(comment + first + comment).events, comment + first + comment);
  stream.begin_again();
  EXPECT_EQ(stream.push(comment + comment + first).events, comment + comment);
  EXPECT_TRUE(stream.has_caught_up());
  const ResumedStream::Part rest = stream.push(chunk(0, "\" was\""));
  EXPECT_EQ(rest.state, State::kGoesOn);
  EXPECT_EQ(rest.events, chunk(0, "\" was\""));
}

TEST(ResumedStream, AnotherReplyIsSeen) {
  for (const std::string& other : {chunk(0, "\" is\""), kLast}) {
    ResumedStream stream(RoutedApi::kOpenAi);
    stream.push(chunk(0, "\"It\"") + chunk(0, "\" was\""));
    stream.begin_again();
    const ResumedStream::Part part = stream.push(chunk(0, "\"It\"") + other + chunk(0, "\" a\""));
    EXPECT_EQ(part.state, State::kDiffers) << other;
    EXPECT_EQ(part.events, "") << other;
  }
}

TEST(ResumedStream, ChoicesComeInAnyOrder) {
  ResumedStream stream(RoutedApi::kOpenAi);
  stream.push(chunk(0, "\"a\"") + chunk(1, "\"x\"") + chunk(0, "\"b\""));
  stream.begin_again();
  const ResumedStream::Part part = stream.push(chunk(1, "\"x\"") + chunk(1, "\"y\"") + chunk(0, "\"a\"") +
                                               chunk(0, "\"b\"") + chunk(0, "\"c\""));
  EXPECT_EQ(part.state, State::kGoesOn);
  EXPECT_EQ(part.events, chunk(1, "\"y\"") + chunk(0, "\"c\""));
}

TEST(ResumedStream, CountsOfTokensMayDiffer) {
  ResumedStream message(RoutedApi::kMessages);
  const std::string text = "event: content_block_delta\ndata: {\"text\":\"a\"}\n\n";
  message.push("event: message_start\ndata: {\"usage\":1}\n\n" + text);
  message.begin_again();
  const ResumedStream::Part part =
      message.push("event: message_start\ndata: {\"usage\":2}\n\n" + text + text);
  EXPECT_EQ(part.state, State::kGoesOn);
  EXPECT_EQ(part.events, text);
}

TEST(ResumedStream, AnInstanceThatStopsIsNotTold) {
  ResumedStream stream(RoutedApi::kOpenAi);
  const std::string error = "data: {\"error\":{\"message\":\"m\"}}\n\n" + kLast;
  EXPECT_EQ(stream.push(error).events, error);
  const ResumedStream::Part stopped = stream.push(mark_event({.kind = ReplyMark::Kind::kStopped}) + error);
  EXPECT_EQ(stopped.state, State::kGivenUp);
  EXPECT_EQ(stopped.events, "");
}

TEST(ResumedStream, HowAPromptWasComputedElsewhereIsToldToTheFrontAlone) {
  ResumedStream stream(RoutedApi::kOpenAi);
  const std::string comment(kSseComment);
  const ResumedStream::Part waits = stream.push(comment);
  EXPECT_FALSE(waits.prefilled);
  const ResumedStream::Part part =
      stream.push(comment +
                  mark_event({.kind = ReplyMark::Kind::kPrefill,
                              .number = static_cast<std::uint64_t>(PrefillEnd::kLost)}) +
                  chunk(0, "\"It\""));
  EXPECT_EQ(part.events, comment + chunk(0, "\"It\""));
  EXPECT_EQ(part.prefilled, PrefillEnd::kLost);
  EXPECT_EQ(part.state, State::kGoesOn);
}

TEST(ResumedStream, TokensAreKeptAndNotPassedOn) {
  ResumedStream stream(RoutedApi::kOpenAi);
  EXPECT_EQ(stream.said(), "");
  const std::string first = prompts(9) + token(0, 1) + chunk(0, "\"It\"") + token(1, 7) + token(0, 2);
  EXPECT_EQ(stream.push(first + ": loci-later\n\n").events, chunk(0, "\"It\""));
  const auto said = [](std::vector<std::vector<TokenId>> tokens) { return write_said(9, tokens); };
  EXPECT_EQ(stream.said(), said({{TokenId(1), TokenId(2)}, {TokenId(7)}}));
  EXPECT_EQ(stream.said_bytes(), 12u);
  // Said again they are the same ones, also where the instance breaks off before it has caught up.
  for (int times = 0; times < 2; ++times) {
    stream.begin_again();
    EXPECT_EQ(stream.push(prompts(9) + token(0, 1)).events, "");
    EXPECT_EQ(stream.said(), said({{TokenId(1), TokenId(2)}, {TokenId(7)}}));
  }
  EXPECT_EQ(stream.push(chunk(0, "\"It\"") + token(0, 2) + token(0, 3)).events, "");
  EXPECT_EQ(stream.said(), said({{TokenId(1), TokenId(2), TokenId(3)}, {TokenId(7)}}));
  // Another instance drew another last token.
  stream.begin_again();
  stream.push(token(0, 1) + token(0, 2) + token(0, 4));
  EXPECT_EQ(stream.said(), said({{TokenId(1), TokenId(2), TokenId(4)}, {TokenId(7)}}));
  // Behind another prompt nothing of it counts.
  stream.begin_again();
  stream.push(prompts(10));
  EXPECT_EQ(stream.said(), "");
  stream.push(token(0, 5));
  EXPECT_EQ(stream.said(), write_said(10, {{TokenId(5)}}));
  stream.forget_said();
  stream.push(token(0, 6));
  EXPECT_EQ(stream.said(), "");
  EXPECT_EQ(stream.said_bytes(), 0u);
}

TEST(ResumedStream, AResponseEndsWithOtherCountsAndTimes) {
  ResumedStream stream(RoutedApi::kResponses);
  const auto event = [](const char* type, const char* more) {
    return fmt::format("event: {}\ndata: {{{}}}\n\n", type, more);
  };
  const std::string begun =
      event("response.created", "\"id\":1") + event("response.output_text.delta", "\"a\"");
  EXPECT_EQ(stream.push(begun + event("response.completed", "\"usage\":1")).state, State::kGoesOn);
  stream.begin_again();
  EXPECT_EQ(stream.push(begun).events, "");
  EXPECT_EQ(stream.push(event("response.completed", "\"usage\":2")).state, State::kGoesOn);
  EXPECT_TRUE(stream.has_caught_up());
  stream.begin_again();
  stream.push(event("response.created", "\"id\":2"));
  EXPECT_EQ(stream.push(event("response.output_text.delta", "\"a\"") + event("response.completed", "")).state,
            State::kDiffers);
  const std::string failed = event("response.failed", "");
  EXPECT_EQ(ResumedStream(RoutedApi::kResponses).push(failed).events, failed);
}

TEST(ResumedStream, WhatIsTooLargeToBeHeldIsTheEndOfGoingOn) {
  ResumedStream stream(RoutedApi::kOpenAi);
  EXPECT_TRUE(stream.is_understood());
  EXPECT_EQ(stream.push("data: half").events, "data: half");
  EXPECT_FALSE(stream.is_understood());
}

}  // namespace
}  // namespace loci
