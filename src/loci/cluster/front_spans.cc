// SPDX-License-Identifier: Apache-2.0
// The spans of a front (docs/operations.md, Traces): one for each request that it passes on, and one for each
// time that an instance is asked.
#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/cluster/front.h"
#include "loci/cluster/front_request.h"
#include "loci/serve/http/path_pattern.h"
#include "loci/serve/http/trace_header.h"
#include "loci/serve/openapi/openapi.h"

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

std::string_view method_of(const HttpRequest& message) {
  if (message.method == http::verb::unknown) return "_OTHER";  // so that clients name no spans
  const auto name = http::to_string(message.method);
  return {name.data(), name.size()};
}

}  // namespace

std::string_view routed_pattern(std::string_view path) {
  // (A model's name may have slashes.)
  if (path.starts_with("/v1/models/") && path.size() > 11) return "/v1/models/{model}";
  for (const std::string& one : openapi_paths()) {
    if (is_routed_path(one) && parameters_of(one, path)) return one;
  }
  return "/v1/{path}";
}

asio::awaitable<void> Front::trace_and_pass_on(Exchange& exchange) {
  if (tracer_ == nullptr || !is_routed_path(exchange.path()) ||
      exchange.request().method == http::verb::options) {
    co_await pass_on(exchange, nullptr);
    co_return;
  }
  HttpRequest& message = exchange.request();
  Traced traced{.request = tracer_->begin(traceparent_in(message), clock_.now())};
  // Whatever the front asks instances for this request is below its span.
  put_traceparent(message, traced.request.context);
  co_await pass_on(exchange, &traced);
  if (!traced.request.context.is_sampled) co_return;
  const std::string_view pattern = routed_pattern(exchange.path());
  TraceSpan span = Tracer::span_of(traced.request, SpanKind::kServer,
                                   fmt::format("{} {}", method_of(message), pattern), clock_.now());
  span.text("http.request.method", method_of(message))
      .text("http.route", pattern)
      .text("url.scheme", tracer_->scheme())
      .text("loci.request_id", exchange.request_id());
  const int status = exchange.status();
  if (status != 0) span.count("http.response.status_code", static_cast<std::uint64_t>(status));
  if (!traced.member.empty()) span.text("loci.member", traced.member).count("loci.tries", traced.tries);
  span.has_failed = status >= 500 || traced.was_lost;
  if (span.has_failed) span.text("error.type", traced.was_lost ? "instance_lost" : std::to_string(status));
  tracer_->end(std::move(span));
}

asio::awaitable<Front::Outcome> Front::trace_try(Request& request, const Instances::Choice& choice) {
  if (request.traced == nullptr) co_return co_await try_at(request, choice.instance, choice.work_bytes);
  HttpRequest& message = request.exchange.request();
  const TracedRequest attempt = tracer_->begin_child(request.traced->request.context, clock_.now());
  put_traceparent(message, attempt.context);
  const Member member = choice.instance->member;
  const Outcome outcome = co_await try_at(request, choice.instance, choice.work_bytes);
  if (!attempt.context.is_sampled) co_return outcome;
  static constexpr std::array<std::string_view, 7> kOutcomes = {
      "", "no_connection", "instance_lost", "drained", "refused", "elsewhere", "reply_differs"};
  const bool has_refused = outcome == Outcome::kRefused || outcome == Outcome::kElsewhere;
  // (Of a stream that goes on elsewhere the refusal has no answer that is kept.)
  const int status = outcome == Outcome::kAnswered    ? request.exchange.status()
                     : has_refused && request.refusal ? request.refusal->status
                                                      : 0;
  const std::string_view pattern = routed_pattern(request.exchange.path());
  TraceSpan span = Tracer::span_of(attempt, SpanKind::kClient,
                                   fmt::format("{} {}", method_of(message), pattern), clock_.now());
  span.text("http.request.method", method_of(message))
      .text("url.template", pattern)
      .text("url.scheme", member.tls ? "https" : "http")
      .text("server.address", member.host)
      .count("server.port", member.port)
      .text("loci.member", member.id);
  if (status != 0) span.count("http.response.status_code", static_cast<std::uint64_t>(status));
  if (request.tried.size() > 1) span.count("http.request.resend_count", request.tried.size() - 1);
  if (outcome != Outcome::kAnswered || status >= 500) {
    span.has_failed = outcome != Outcome::kElsewhere;
    const std::string_view why = kOutcomes[static_cast<std::size_t>(outcome)];
    span.text("error.type", why.empty() ? std::to_string(status) : std::string(why));
  }
  tracer_->end(std::move(span));
  co_return outcome;
}

}  // namespace loci
