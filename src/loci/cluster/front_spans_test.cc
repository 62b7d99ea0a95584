// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/base/mutex.h"
#include "loci/cluster/front_testing.h"
#include "loci/cluster/routed_request.h"
#include "loci/serve/openapi/openapi.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kAsked = "Traceparent: 00-" + kTrace + "-00f067aa0ba902b7-01\r\n";

// The header that a request of the front's has; empty: none.
std::string traceparent_of_text(const std::string& request) {
  std::smatch found;
  return std::regex_search(request, found, std::regex("\r\ntraceparent: ([^\r]*)\r\n")) ? found[1].str() : "";
}

class FrontSpansTest : public FrontTest {
 protected:
  // (FrontTest's destructor ends the front before the tracer goes.)
  FrontSpansTest() { front_.trace_with(tracer()); }
  ~FrontSpansTest() override {
    server_->stop(0);
    traces()->exporter.stop(0);
  }

  struct Sent {
    Mutex mutex;
    std::vector<Json> spans GUARDED_BY(mutex);
  };
  struct Parts {
    Parts(const Clock& clock, std::shared_ptr<spdlog::logger> log, std::shared_ptr<Sent> sent)
        : exporter(
              {.batch_wait = 0}, {}, clock,
              [sent](const std::string& body, Nanos) {
                const Json json = Json::parse(body);
                const MutexLock lock(sent->mutex);
                for (const Json& span : json["resourceSpans"][0]["scopeSpans"][0]["spans"])
                  sent->spans.push_back(span);
                return PostAnswer{.result = PostAnswer::Result::kTaken, .why = {}, .body = {}};
              },
              std::move(log)) {}
    TraceExporter exporter;
    Tracer tracer{exporter, {.share = 0.0, .seed = 5}};
  };
  Parts* traces() {
    if (parts_ == nullptr) parts_ = std::make_unique<Parts>(clock_, log_, sent_);
    return parts_.get();
  }
  Tracer& tracer() { return traces()->tracer; }
  // Waits for so many.
  std::vector<Json> spans(std::size_t count) {
    EXPECT_TRUE(eventually([&] {
      const MutexLock lock(sent_->mutex);
      return sent_->spans.size() >= count;
    }));
    const MutexLock lock(sent_->mutex);
    return sent_->spans;
  }
  static Json value(const Json& span, const std::string& key) {
    for (const Json& attribute : span["attributes"]) {
      if (attribute["key"] == key) return attribute["value"].begin().value();
    }
    return {};
  }
  std::shared_ptr<Sent> sent_ = std::make_shared<Sent>();
  std::unique_ptr<Parts> parts_;
};

TEST_F(FrontSpansTest, TheInstanceWorksForTheSpanOfItsTry) {
  std::string request;
  FakeInstance instance([&](const std::string& got) {
    request = got;
    return whole("{}");
  });
  update({instance.member("a")});
  post("/v1/chat/completions", kChat, kAsked + "tracestate: x=y\r\n");
  const std::vector<Json> all = spans(2);
  ASSERT_EQ(all.size(), 2u);
  const Json &attempt = all[0], &server = all[1];
  EXPECT_EQ(server["name"], "POST /v1/chat/completions");
  EXPECT_EQ(server["kind"], 2);
  EXPECT_EQ(server["traceId"], kTrace);
  EXPECT_EQ(server["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_EQ(value(server, "http.response.status_code"), "200");
  EXPECT_EQ(value(server, "loci.member"), "a");
  EXPECT_EQ(attempt["kind"], 3);
  EXPECT_EQ(attempt["parentSpanId"], server["spanId"]);
  EXPECT_EQ(value(attempt, "server.address"), "127.0.0.1");
  EXPECT_EQ(value(attempt, "server.port"), std::to_string(instance.port()));
  EXPECT_EQ(traceparent_of_text(request),
            "00-" + kTrace + "-" + attempt["spanId"].get<std::string>() + "-01");
  EXPECT_NE(request.find("tracestate: x=y\r\n"), std::string::npos) << request;
  EXPECT_EQ(request.find("00f067aa0ba902b7"), std::string::npos) << request;
  EXPECT_EQ(metric("loci_trace_spans_total{result=\"dropped\"}"), 0);
}

TEST_F(FrontSpansTest, EachTryHasItsOwn) {
  Mutex mutex;  // guards `names`: each instance has a thread
  std::vector<std::string> names;
  const auto script = [&](const std::string& got) {
    const MutexLock lock(mutex);
    names.push_back(traceparent_of_text(got));
    return names.size() == 1 ? std::string() : whole("{}");  // the first one ends
  };
  FakeInstance one(script), other(script);
  update({one.member("a"), other.member("b")});
  post("/v1/chat/completions", kChat, kAsked);
  const std::vector<Json> all = spans(3);
  ASSERT_EQ(all.size(), 3u);
  {
    const MutexLock lock(mutex);
    ASSERT_EQ(names.size(), 2u);
    EXPECT_NE(names[0], names[1]);
  }
  EXPECT_EQ(all[0]["status"]["code"], 2);
  EXPECT_EQ(value(all[0], "error.type"), "instance_lost");
  EXPECT_FALSE(all[1].contains("status"));
  EXPECT_EQ(value(all[1], "http.request.resend_count"), "1");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(all[i]["parentSpanId"], all[2]["spanId"]);
  EXPECT_FALSE(all[2].contains("status"));
  EXPECT_EQ(value(all[2], "loci.tries"), "2");
}

// Its choice is passed on, so that instances make no traces of their own.
TEST_F(FrontSpansTest, WhatIsNotSampledIsPassedOnAsSuch) {
  std::string request;
  FakeInstance instance([&](const std::string& got) {
    request = got;
    return whole("{}");
  });
  update({instance.member("a")});
  post("/v1/chat/completions", kChat);  // the tracer's share is 0
  EXPECT_TRUE(std::regex_match(traceparent_of_text(request), std::regex("00-[0-9a-f]{32}-[0-9a-f]{16}-00")))
      << request;
  post("/v1/chat/completions", kChat, "traceparent: 00-x\r\ntracestate: x=y\r\n");
  EXPECT_TRUE(traceparent_of_text(request).ends_with("-00")) << request;
  EXPECT_EQ(request.find("tracestate"), std::string::npos) << request;
  get("/health", kAsked);
  get("/metrics", kAsked);
  get("/v1/models", kAsked);
  const std::vector<Json> all = spans(1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["name"], "GET /v1/models");
}

TEST_F(FrontSpansTest, NobodyThereIsAnError) {
  update({});
  post("/v1/chat/completions", kChat, kAsked);
  const std::vector<Json> all = spans(1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["status"]["code"], 2);
  EXPECT_EQ(value(all[0], "error.type"), "503");
}

// The table of the API's routes is the API's own: a new one needs no line here.
TEST(RoutedPatternTest, EveryRouteThatIsPassedOnHasItsName) {
  std::size_t routed = 0;
  for (const std::string& pattern : openapi_paths()) {
    if (!is_routed_path(pattern)) continue;
    std::string path;
    for (const char c : pattern) path += c == '{' || c == '}' ? '1' : c;
    EXPECT_EQ(routed_pattern(path), pattern) << path;
    ++routed;
  }
  EXPECT_GE(routed, 18u);
}

TEST(RoutedPatternTest, PathsOfClientsNameNoPatterns) {
  EXPECT_EQ(routed_pattern("/v1/chat/completions"), "/v1/chat/completions");
  EXPECT_EQ(routed_pattern("/v1/responses/resp_1"), "/v1/responses/{id}");
  EXPECT_EQ(routed_pattern("/v1/responses/resp_1/cancel"), "/v1/responses/{id}/cancel");
  EXPECT_EQ(routed_pattern("/v1/conversations/c/items/i"), "/v1/conversations/{id}/items/{item}");
  EXPECT_EQ(routed_pattern("/v1/messages/count_tokens"), "/v1/messages/count_tokens");
  EXPECT_EQ(routed_pattern("/v1/responses/input_tokens"), "/v1/responses/input_tokens");
  for (const char* path :
       {"/v1/", "/v1/x", "/v1/responses/", "/v1/responses/a/b", "/v1/chat/completions/x", "/v1//"})
    EXPECT_EQ(routed_pattern(path), "/v1/{path}") << path;
}

}  // namespace
}  // namespace loci
