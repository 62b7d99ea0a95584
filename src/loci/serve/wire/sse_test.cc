// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/sse.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace loci {
namespace {

std::vector<std::string> parse(const std::string& stream, std::size_t piece) {
  SseParser parser;
  std::vector<std::string> out;
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    for (std::string& event : parser.push(std::string_view(stream).substr(at, piece)))
      out.push_back(std::move(event));
  }
  return out;
}

TEST(Sse, FramesOneEvent) {
  EXPECT_EQ(sse_event("{\"a\":1}"), "data: {\"a\":1}\n\n");
  EXPECT_EQ(sse_event(kSseDone), "data: [DONE]\n\n");
  EXPECT_EQ(sse_event("a\nb\r\nc\rd"), "data: a\ndata: b\ndata: c\ndata: d\n\n");
  EXPECT_EQ(sse_event(""), "data: \n\n");
}

TEST(Sse, CommentsAreNoEvents) {
  EXPECT_FALSE(has_event(""));
  EXPECT_FALSE(has_event(kSseComment));
  EXPECT_FALSE(has_event(": a\n\n:\n\n"));
  EXPECT_TRUE(has_event(": a\n\ndata: x\n\n"));
  EXPECT_TRUE(has_event("event: x\ndata: y\n\n:\n\n"));
  EXPECT_TRUE(SseParser().push(": a\n\n:\n\n").empty());
}

TEST(Sse, WhatIsFramedIsReadBackInPiecesOfAnySize) {
  const std::vector<std::string> events = {"{\"a\":1}", "two\nlines", "", " leading blank", "é€😀", "[DONE]"};
  std::string stream;
  for (const std::string& event : events) stream += sse_event(event);
  for (std::size_t piece = 1; piece <= stream.size(); ++piece)
    EXPECT_EQ(parse(stream, piece), events) << piece;
}

TEST(Sse, TakesWhatOtherServersSend) {
  const std::string stream =
      ": comment\r\n\r\nevent: x\r\nid: 5\r\ndata:no blank\r\n\r\ndata: a\rdata: b\r\rdata: cut";
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
    EXPECT_EQ(parse(stream, piece), (std::vector<std::string>{"no blank", "a\nb"})) << piece;
  }
}

TEST(Sse, BoundsAnEvent) {
  SseParser parser(100);
  EXPECT_TRUE(parser.push("data: " + std::string(200, 'x')).empty());
  EXPECT_TRUE(parser.push("\n\n").empty());
  EXPECT_TRUE(parser.push("data: small\n\n").empty()) << "nor does anything come after it";
}

}  // namespace
}  // namespace loci
