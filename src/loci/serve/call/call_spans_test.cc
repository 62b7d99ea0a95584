// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/call/call_spans.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/serve/http/server_testing.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

// A server that answers each request with 200, as if a reply had been made as the test says.
class CallSpansTest : public testing::Test {
 protected:
  // The spans of one request to that route, by name.
  std::map<std::string, Json> spans_of(const Route& route, const std::function<void(Call&)>& tell) {
    ask([&](Call& call, Tracer& tracer) {
      tell(call);
      end_spans(tracer, call, route, call.exchange.received_at() + 900);
    });
    return take();
  }
  void ask(const std::function<void(Call&, Tracer&)>& end) {
    const auto post = [this](const std::string& body, Nanos) {
      const MutexLock lock(mutex_);
      bodies_.push_back(body);
      return PostAnswer{.result = PostAnswer::Result::kTaken, .why = {}, .body = {}};
    };
    TraceExporter exporter({.batch_wait = 3600 * kNanosPerSecond}, {}, clock_, post, log_);
    Tracer tracer(exporter, {});
    HttpServer server(HttpServer::Options{.host = "127.0.0.1", .port = 0}, clock_, metrics_, log_);
    const auto handle = [&](Exchange& exchange) -> boost::asio::awaitable<void> {
      Call call{
          .exchange = exchange, .tenant = {}, .ticket = {}, .resumed = {}, .prefill = {}, .parameters = {}};
      call.trace =
          tracer.begin("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", exchange.received_at());
      co_await call.answer("{}");
      end(call, tracer);
    };
    ASSERT_TRUE(server.listen(handle).ok());
    Client client(server.port());
    client.send(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: r1\r\nConnection: close\r\n\r\n");
    client.read_all();
    server.stop(60 * kNanosPerSecond);
    exporter.stop(60 * kNanosPerSecond);
  }
  std::map<std::string, Json> take() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::map<std::string, Json> out;
    for (const std::string& body : bodies_) {
      const Json json = Json::parse(body);
      for (const Json& span : json["resourceSpans"][0]["scopeSpans"][0]["spans"]) out[span["name"]] = span;
    }
    return out;
  }
  // Absent ones are null.
  static Json value(const Json& span, const std::string& key) {
    for (const Json& attribute : span["attributes"]) {
      if (attribute["key"] == key) return attribute["value"].begin().value();
    }
    return {};
  }
  static std::int64_t begin(const Json& span) {
    return std::stoll(span["startTimeUnixNano"].get<std::string>());
  }
  static std::int64_t end(const Json& span) { return std::stoll(span["endTimeUnixNano"].get<std::string>()); }

  SystemClock clock_;
  ServeMetrics metrics_{"test"};
  std::shared_ptr<spdlog::logger> log_ =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  const Route chat_{
      .method = boost::beast::http::verb::post, .pattern = "/v1/chat/completions", .handler = {}};
  Mutex mutex_;
  std::vector<std::string> bodies_ GUARDED_BY(mutex_);
};

GenerationSummary summary_of_a_reply() {
  GenerationSummary out{.choices = 2,
                        .admitted = 100,
                        .first_token = 300,
                        .last_token = 700,
                        .duration = 800,
                        .finish_reason = "stop",
                        .finish_reasons = {"stop", "length"},
                        .model_asked = "default",
                        .model = "tiny"};
  out.usage = {.prompt_tokens = 34, .cached_tokens = 30, .completion_tokens = 12, .explanation = {}};
  out.usage.explanation.sources.disk = 30;
  out.usage.explanation.sources.computed[0] = 4;
  return out;
}

TEST_F(CallSpansTest, AReplyHasItsPartsBelowItsRequest) {
  const auto spans = spans_of(chat_, [](Call& call) { call.generation = summary_of_a_reply(); });
  ASSERT_EQ(spans.size(), 4u);
  const Json& call = spans.at("POST /v1/chat/completions");
  EXPECT_EQ(call["kind"], 2);
  EXPECT_EQ(call["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(call["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_FALSE(call.contains("status"));
  const std::map<std::string, Json> wanted = {{"http.request.method", "POST"},
                                              {"http.route", "/v1/chat/completions"},
                                              {"url.scheme", "http"},
                                              {"http.response.status_code", "200"},
                                              {"loci.request_id", "r1"},
                                              {"gen_ai.operation.name", "chat"},
                                              {"gen_ai.request.model", "default"},
                                              {"gen_ai.response.model", "tiny"},
                                              {"gen_ai.usage.input_tokens", "34"},
                                              {"gen_ai.usage.output_tokens", "12"},
                                              {"loci.cached_tokens", "30"},
                                              {"loci.tokens.device", "0"},
                                              {"loci.tokens.disk", "30"},
                                              {"loci.tokens.computed", "4"}};
  for (const auto& [key, text] : wanted) EXPECT_EQ(value(call, key), text) << key;
  EXPECT_EQ(value(call, "gen_ai.response.finish_reasons").dump(),
            R"({"values":[{"stringValue":"stop"},{"stringValue":"length"}]})");
  const Json &queue = spans.at("queue"), &prompt = spans.at("prompt"), &reply = spans.at("reply");
  for (const Json& part : {queue, prompt, reply}) {
    EXPECT_EQ(part["parentSpanId"], call["spanId"]);
    EXPECT_EQ(part["traceId"], call["traceId"]);
    EXPECT_EQ(part["kind"], 1);
  }
  EXPECT_EQ(end(queue) - begin(queue), 100);
  EXPECT_EQ(begin(prompt), end(queue));
  EXPECT_EQ(end(prompt) - begin(prompt), 200);
  EXPECT_EQ(begin(reply), end(prompt));
  EXPECT_EQ(end(reply) - begin(reply), 400);
  EXPECT_LE(begin(call), begin(queue));
}

TEST_F(CallSpansTest, WhatWasNeverAdmittedHasAQueueAlone) {
  const auto spans = spans_of(
      chat_, [](Call& call) { call.generation = GenerationSummary{.duration = 50, .client_left = true}; });
  EXPECT_EQ(spans.size(), 2u);
  EXPECT_EQ(end(spans.at("queue")) - begin(spans.at("queue")), 50);
  EXPECT_EQ(value(spans.at("POST /v1/chat/completions"), "loci.finish"), "client_left");
}

TEST_F(CallSpansTest, AFailedStreamIsAnErrorWhateverItsStatus) {
  const auto spans = spans_of(chat_, [](Call& call) {
    call.generation = summary_of_a_reply();
    call.generation->finish_reason = "failed";
  });
  const Json& call = spans.at("POST /v1/chat/completions");
  EXPECT_EQ(call["status"]["code"], 2);
  EXPECT_EQ(value(call, "error.type"), "stream_failed");
}

TEST_F(CallSpansTest, ARefusalHasItsCodeAndNoText) {
  const auto spans = spans_of(chat_, [](Call& call) {
    call.refusal = ApiError{.http_status = 400, .message = "secret", .code = "invalid_value"};
  });
  ASSERT_EQ(spans.size(), 1u);
  const Json& call = spans.at("POST /v1/chat/completions");
  EXPECT_EQ(value(call, "error.type"), "invalid_value");
  EXPECT_FALSE(call.contains("status"));  // the client's fault
  EXPECT_EQ(call.dump().find("secret"), std::string::npos);
}

TEST_F(CallSpansTest, OtherRoutesGenerateNothing) {
  const Route route{.pattern = "/v1/responses/{id}", .handler = {}};
  const auto spans = spans_of(route, [](Call&) {});
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_TRUE(value(spans.begin()->second, "gen_ai.operation.name").is_null());
}

TEST_F(CallSpansTest, WhatIsNotSampledHasNoSpans) {
  EXPECT_TRUE(spans_of(chat_, [](Call& call) {
                call.generation = summary_of_a_reply();
                call.trace->context.is_sampled = false;
              }).empty());
}

TEST_F(CallSpansTest, AGenerationInTheBackgroundIsBelowItsRequest) {
  std::string above;
  ask([&](Call& call, Tracer& tracer) {
    above = to_hex(call.trace->context.span);
    const ReplyOrigin origin{.io = call.exchange.io(),
                             .tenant = std::make_shared<Tenant>(Tenant{.id = "t"}),
                             .request_id = "r2",
                             .path = "/v1/responses",
                             .received_at = call.exchange.received_at(),
                             .trace = call.trace->context};
    end_background_spans(tracer, origin, summary_of_a_reply(), false);
  });
  const auto spans = take();
  ASSERT_EQ(spans.size(), 4u);
  const Json& background = spans.at("background");
  EXPECT_EQ(background["parentSpanId"], above);
  EXPECT_EQ(value(background, "loci.tenant"), "t");
  EXPECT_EQ(value(background, "gen_ai.operation.name"), "chat");
  EXPECT_EQ(end(background) - begin(background), 800);
  EXPECT_EQ(spans.at("reply")["parentSpanId"], background["spanId"]);
}

}  // namespace
}  // namespace loci
