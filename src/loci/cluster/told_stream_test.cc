// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/told_stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace loci {
namespace {

using State = ToldStream::State;

// An event of a choice, as two instances write it at different times.
std::string chunk(int choice, const std::string& delta, int created = 5) {
  return fmt::format(
      "data: "
      "{{\"id\":\"chatcmpl-1\",\"created\":{},\"model\":\"m\",\"choices\":[{{\"index\":{},\"delta\":{}}}]}}"
      "\n\n",
      created, choice, delta);
}
const std::string kLast = "data: [DONE]\n\n";

TEST(ToldStream, WhatWasToldIsKeptBackAndTheRestHasTheFirstTime) {
  ToldStream stream(RoutedApi::kOpenAi);
  const std::string first = chunk(0, "\"It\"") + chunk(0, "\" was\"");
  EXPECT_EQ(stream.push(first).events, first);
  for (int times = 0; times < 2; ++times) {
    stream.begin_again();
    EXPECT_EQ(stream.push(chunk(0, "\"It\"", 9)).events, "");
    EXPECT_FALSE(stream.has_caught_up());
    EXPECT_EQ(stream.push(chunk(0, "\" was\"", 9)).events, "");
    EXPECT_TRUE(stream.has_caught_up());
  }
  const ToldStream::Part rest = stream.push(chunk(0, "\" a\"", 9) + kLast);
  EXPECT_EQ(rest.state, State::kGoesOn);
  EXPECT_EQ(rest.events, chunk(0, "\" a\"", 5) + kLast);
}

TEST(ToldStream, AnotherReplyIsSeen) {
  for (const std::string& other : {chunk(0, "\" is\""), kLast}) {
    ToldStream stream(RoutedApi::kOpenAi);
    stream.push(chunk(0, "\"It\"") + chunk(0, "\" was\""));
    stream.begin_again();
    const ToldStream::Part part = stream.push(chunk(0, "\"It\"") + other + chunk(0, "\" a\""));
    EXPECT_EQ(part.state, State::kDiffers) << other;
    EXPECT_EQ(part.events, "") << other;
  }
}

TEST(ToldStream, ChoicesComeInAnyOrder) {
  ToldStream stream(RoutedApi::kOpenAi);
  stream.push(chunk(0, "\"a\"") + chunk(1, "\"x\"") + chunk(0, "\"b\""));
  stream.begin_again();
  const ToldStream::Part part = stream.push(chunk(1, "\"x\"") + chunk(1, "\"y\"") + chunk(0, "\"a\"") +
                                            chunk(0, "\"b\"") + chunk(0, "\"c\""));
  EXPECT_EQ(part.state, State::kGoesOn);
  EXPECT_EQ(part.events, chunk(1, "\"y\"") + chunk(0, "\"c\""));
}

TEST(ToldStream, IdsOfCallsAndCountsOfTokensMayDiffer) {
  ToldStream stream(RoutedApi::kOpenAi);
  const auto call = [](const char* id, const char* name) {
    return chunk(0, fmt::format(R"({{"tool_calls":[{{"id":"{}","name":"{}"}}]}})", id, name));
  };
  stream.push(call("call_1", "f"));
  stream.begin_again();
  EXPECT_EQ(stream.push(call("call_22", "f")).state, State::kGoesOn);
  stream.begin_again();
  EXPECT_EQ(stream.push(call("call_1", "g")).state, State::kDiffers);

  ToldStream message(RoutedApi::kMessages);
  const std::string text = "event: content_block_delta\ndata: {\"text\":\"a\"}\n\n";
  message.push("event: message_start\ndata: {\"usage\":1}\n\n" + text);
  message.begin_again();
  const ToldStream::Part part = message.push("event: message_start\ndata: {\"usage\":2}\n\n" + text + text);
  EXPECT_EQ(part.state, State::kGoesOn);
  EXPECT_EQ(part.events, text);
}

TEST(ToldStream, AnInstanceThatStopsIsNotTold) {
  ToldStream stream(RoutedApi::kOpenAi);
  const auto error = [](const char* code) {
    return fmt::format("data: {{\"error\":{{\"message\":\"m\",\"code\":\"{}\"}}}}\n\n{}", code, kLast);
  };
  EXPECT_EQ(stream.push(error("unavailable")).state, State::kGivenUp);
  EXPECT_EQ(stream.push(error("unavailable")).events, "");
  EXPECT_EQ(stream.push(error("internal_error")).events, error("internal_error"));
}

TEST(ToldStream, WhatIsTooLargeToBeHeldIsTheEndOfGoingOn) {
  ToldStream stream(RoutedApi::kOpenAi);
  EXPECT_TRUE(stream.is_understood());
  EXPECT_EQ(stream.push("data: half").events, "data: half");
  EXPECT_FALSE(stream.is_understood());
}

}  // namespace
}  // namespace loci
