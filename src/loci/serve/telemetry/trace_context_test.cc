// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/telemetry/trace_context.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace loci {
namespace {

// The example of the recommendation (W3C Trace Context, 3.2).
const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kSpan = "00f067aa0ba902b7";
const std::string kExample = "00-" + kTrace + "-" + kSpan + "-01";

TEST(TraceContextTest, ReadsTheExamplesOfTheRecommendation) {
  const auto sampled = parse_traceparent(kExample);
  ASSERT_TRUE(sampled);
  EXPECT_EQ(to_hex(sampled->trace), kTrace);
  EXPECT_EQ(to_hex(sampled->span), kSpan);
  EXPECT_TRUE(sampled->is_sampled);
  const auto other = parse_traceparent("00-" + kTrace + "-" + kSpan + "-00");
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->is_sampled);
}

TEST(TraceContextTest, OtherFlagsAreReadAndNotPassedOn) {
  for (const char* flags : {"03", "ff", "fd", "09"}) {
    const auto context = parse_traceparent("00-" + kTrace + "-" + kSpan + "-" + flags);
    ASSERT_TRUE(context) << flags;
    EXPECT_EQ(traceparent_of(*context), kExample);
  }
  EXPECT_FALSE(parse_traceparent("00-" + kTrace + "-" + kSpan + "-fe")->is_sampled);
}

// 4.3: a version that is not known is read as far as it is version 00, if what follows is separated.
TEST(TraceContextTest, LaterVersionsAreReadAsTheFirst) {
  for (const char* version : {"01", "02", "cc", "fe"}) {
    const std::string value = version + kExample.substr(2);
    ASSERT_TRUE(parse_traceparent(value)) << value;
    EXPECT_EQ(traceparent_of(*parse_traceparent(value)), kExample);
    EXPECT_TRUE(parse_traceparent(value + "-what-the-future-will-be-like"));
    EXPECT_TRUE(parse_traceparent(value + "-"));
    EXPECT_FALSE(parse_traceparent(value + ".what-the-future-will-not-be-like"));
    EXPECT_FALSE(parse_traceparent(value + "0"));
  }
}

TEST(TraceContextTest, InvalidOnesAreAbsent) {
  const std::string zero_trace(32, '0'), zero_span(16, '0');
  for (const std::string& value : {
           std::string(),
           std::string("00"),
           "ff" + kExample.substr(2),                               // no version
           "00-" + zero_trace + "-" + kSpan + "-01",                // no trace
           "00-" + kTrace + "-" + zero_span + "-01",                // no span
           kExample + "-what-the-future-will-be-like",              // of version 00 there is no more
           kExample + "-",                                          //
           kExample + " ",                                          //
           " " + kExample,                                          //
           kExample.substr(0, 54),                                  //
           "0-" + kTrace + "-" + kSpan + "-01",                     //
           "000-" + kTrace + "-" + kSpan + "-01",                   //
           "00-" + kTrace.substr(1) + "-" + kSpan + "-001",         //
           "00-" + kTrace + kSpan + "--01",                         //
           "00_" + kTrace + "-" + kSpan + "-01",                    //
           "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + kSpan + "-01",  // upper case
           "00-" + kTrace + "-00F067AA0BA902B7-01",                 //
           "00-" + kTrace + "-" + kSpan + "-0A",                    //
           "0x" + kExample.substr(2),                               //
           kExample + ",00-" + kTrace + "-" + kSpan + "-01",        // two in one header
       })
    EXPECT_FALSE(parse_traceparent(value)) << value;
}

// Each byte in each place: only a digit of the right kind is taken where a digit stands, and only a hyphen
// where one does.
TEST(TraceContextTest, EveryByteOfEveryPlaceIsChecked) {
  const std::set<std::size_t> hyphens = {2, 35, 52};
  for (std::size_t at = 0; at < kExample.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string value = kExample;
      value[at] = static_cast<char>(byte);
      const bool is_digit = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
      // (One changed digit makes neither the version ff nor an id of zeros. Another version takes no less.)
      const bool is_valid = hyphens.contains(at) ? byte == '-' : is_digit;
      EXPECT_EQ(parse_traceparent(value).has_value(), is_valid) << at << " " << byte;
    }
    EXPECT_FALSE(parse_traceparent(kExample.substr(0, at)));
    EXPECT_FALSE(parse_traceparent(kExample.substr(0, at) + kExample.substr(at + 1)));
    EXPECT_FALSE(parse_traceparent(kExample.substr(0, at) + "0" + kExample.substr(at)));
  }
}

TEST(TraceContextTest, WhatIsWrittenIsReadBack) {
  TraceIds ids(7);
  for (int i = 0; i < 10'000; ++i) {
    const TraceContext context{.trace = ids.new_trace(), .span = ids.new_span(), .is_sampled = i % 2 == 0};
    EXPECT_EQ(parse_traceparent(traceparent_of(context)), context);
  }
}

TEST(TraceContextTest, IdsDiffer) {
  TraceIds ids(1), others(2);
  std::set<std::string> seen;
  for (int i = 0; i < 1'000; ++i) {
    for (TraceIds* one : {&ids, &others}) {
      EXPECT_TRUE(seen.insert(to_hex(one->new_trace())).second);
      EXPECT_TRUE(seen.insert(to_hex(one->new_span())).second);
    }
  }
}

TEST(TraceContextTest, TheShareIsThatOfTracesAndGrowsWithIt) {
  TraceIds ids(3);
  int few = 0, many = 0;
  for (int i = 0; i < 20'000; ++i) {
    const TraceId trace = ids.new_trace();
    EXPECT_TRUE(is_chosen(trace, 1));
    EXPECT_FALSE(is_chosen(trace, 0));
    const bool is_of_few = is_chosen(trace, 0.1), is_of_many = is_chosen(trace, 0.5);
    // Servers with a larger share choose what those with a smaller one do.
    EXPECT_TRUE(!is_of_few || is_of_many);
    few += is_of_few ? 1 : 0;
    many += is_of_many ? 1 : 0;
  }
  EXPECT_NEAR(few, 2'000, 300);
  EXPECT_NEAR(many, 10'000, 500);
}

}  // namespace
}  // namespace loci
