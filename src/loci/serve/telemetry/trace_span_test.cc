// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/telemetry/trace_span.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace loci {
namespace {

const SpanResource kResource{.service = "loci", .version = "1.2", .instance = "i1", .host = "h1"};

TEST(TraceSpanTest, IsWrittenAsOtlpHasIt) {
  const auto context = parse_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  TraceSpan span{.trace = context->trace,
                 .id = context->span,
                 .parent = context->span,
                 .name = "POST /v1/completions",
                 .kind = SpanKind::kServer,
                 .begin = 1'700'000'000'000'000'005,
                 .end = 1'700'000'000'000'000'007,
                 .has_failed = true};
  span.text("http.route", "/v1/completions").count("http.response.status_code", 500);
  span.attributes.emplace_back("gen_ai.response.finish_reasons", std::vector<std::string>{"stop", "length"});
  EXPECT_EQ(
      spans_json({&span, 1}, kResource),
      R"({"resourceSpans":[{"resource":{"attributes":[)"
      R"({"key":"service.name","value":{"stringValue":"loci"}},)"
      R"({"key":"service.version","value":{"stringValue":"1.2"}},)"
      R"({"key":"service.instance.id","value":{"stringValue":"i1"}},)"
      R"({"key":"host.name","value":{"stringValue":"h1"}}]},)"
      R"("scopeSpans":[{"scope":{"name":"loci","version":"1.2"},"spans":[)"
      R"({"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"00f067aa0ba902b7",)"
      R"("parentSpanId":"00f067aa0ba902b7","name":"POST /v1/completions","kind":2,)"
      R"("startTimeUnixNano":"1700000000000000005","endTimeUnixNano":"1700000000000000007","attributes":[)"
      R"({"key":"http.route","value":{"stringValue":"/v1/completions"}},)"
      R"({"key":"http.response.status_code","value":{"intValue":"500"}},)"
      R"({"key":"gen_ai.response.finish_reasons","value":{"arrayValue":{"values":[)"
      R"({"stringValue":"stop"},{"stringValue":"length"}]}}}],"status":{"code":2}}]}]}]})");
}

TEST(TraceSpanTest, AnOperatorsAttributesGoBeforeTheServersOwn) {
  SpanResource resource = kResource;
  resource.others = {{"service.instance.id", "pod 1"}, {"k8s.pod.name", "\"a\""}};
  const std::string json = spans_json({}, resource);
  EXPECT_NE(json.find(R"("attributes":[{"key":"service.name","value":{"stringValue":"loci"}},)"
                      R"({"key":"service.version","value":{"stringValue":"1.2"}},)"
                      R"({"key":"host.name","value":{"stringValue":"h1"}},)"
                      R"({"key":"service.instance.id","value":{"stringValue":"pod 1"}},)"
                      R"({"key":"k8s.pod.name","value":{"stringValue":"\"a\""}}]})"),
            std::string::npos)
      << json;
}

TEST(TraceSpanTest, ARootHasNoParentAndASuccessNoStatus) {
  TraceIds ids(1);
  const TraceSpan span{
      .trace = ids.new_trace(), .id = ids.new_span(), .parent = {}, .name = "x", .begin = 9, .end = 3};
  const std::string json = spans_json({&span, 1}, kResource);
  EXPECT_EQ(json.find("parentSpanId"), std::string::npos);
  EXPECT_EQ(json.find("status"), std::string::npos);
  EXPECT_NE(json.find(R"("kind":1,"startTimeUnixNano":"9","endTimeUnixNano":"9","attributes":[])"),
            std::string::npos)
      << json;
}

TEST(TraceSpanTest, TextsOfClientsAreCutAndStayUtf8) {
  TraceSpan span;
  span.text("a", std::string(kSpanTextMax - 1, 'x') + "\u00e9 and more").text("b", "\xff");
  EXPECT_EQ(std::get<std::string>(span.attributes[0].second), std::string(kSpanTextMax - 1, 'x'));
  const std::string json = spans_json({&span, 1}, kResource);
  EXPECT_NE(json.find("\xef\xbf\xbd"), std::string::npos) << json;
}

TEST(TraceSpanTest, ReadsWhatACollectorRejects) {
  EXPECT_EQ(rejected_spans(R"({"partialSuccess":{"rejectedSpans":"3","errorMessage":"x"}})"), 3u);
  EXPECT_EQ(rejected_spans(R"({"partialSuccess":{"rejectedSpans":4}})"), 4u);
  for (const char* answer :
       {"", "{}", "[]", "no", R"({"partialSuccess":{}})", R"({"partialSuccess":null})",
        R"({"partialSuccess":{"rejectedSpans":"-1"}})", R"({"partialSuccess":{"rejectedSpans":"3x"}})",
        R"({"partialSuccess":{"rejectedSpans":-3}})"})
    EXPECT_EQ(rejected_spans(answer), 0u) << answer;
}

}  // namespace
}  // namespace loci
