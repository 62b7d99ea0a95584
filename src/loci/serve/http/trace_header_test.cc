// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/trace_header.h"

#include <gtest/gtest.h>

#include <string>

namespace loci {
namespace {

const std::string kAsked = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceHeaderTest, SeveralHeadersCountAsNone) {
  EXPECT_EQ(traceparent_in({}), "");
  EXPECT_EQ(traceparent_in({.headers = {{"TraceParent", kAsked}}}), kAsked);
  EXPECT_EQ(traceparent_in({.headers = {{"traceparent", kAsked}, {"x", "y"}, {"Traceparent", kAsked}}}), "");
}

TEST(TraceHeaderTest, TheNextSpanTakesThePlaceOfTheLast) {
  HttpRequest request{.headers = {{"Traceparent", kAsked}, {"TraceState", "a=b"}, {"x", "y"}}};
  TraceContext context = *parse_traceparent(kAsked);
  context.span = TraceIds(1).new_span();
  put_traceparent(request, context);
  EXPECT_EQ(traceparent_in(request), traceparent_of(context));
  EXPECT_EQ(request.header("tracestate"), "a=b");
  EXPECT_EQ(request.header("x"), "y");
}

// It belongs to a trace that nobody continues (3.3.1.1 of the recommendation).
TEST(TraceHeaderTest, TheStateOfAnotherTraceGoes) {
  TraceIds ids(1);
  const TraceContext context{.trace = ids.new_trace(), .span = ids.new_span()};
  for (const std::string& value : {kAsked, std::string("00-x")}) {
    HttpRequest request{.headers = {{"traceparent", value}, {"tracestate", "a=b"}, {"TraceState", "c=d"}}};
    put_traceparent(request, context);
    EXPECT_EQ(request.headers, (HttpHeaders{{"traceparent", traceparent_of(context)}}));
  }
}

}  // namespace
}  // namespace loci
