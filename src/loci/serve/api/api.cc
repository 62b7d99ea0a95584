// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "loci/base/check.h"
#include "loci/serve/api/anthropic/endpoints.h"
#include "loci/serve/api/loci/endpoints.h"
#include "loci/serve/api/openai/endpoints.h"
#include "loci/serve/api/responses/endpoints.h"
#include "loci/serve/call/access_log.h"
#include "loci/serve/call/call_spans.h"
#include "loci/serve/http/trace_header.h"
#include "loci/serve/openapi/openapi.h"
#include "loci/serve/wire/json_parse.h"
#include "loci/serve/wire/route_error.h"

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

// Those that the page names: clients have headers of their own (x-stainless-lang, and others with each
// version), and none of them gives a page more than the origin that is permitted. Else the usual ones.
std::string allowed_headers(const HttpRequest& request) {
  constexpr std::size_t kNamesBytesMax = 2'048;
  const std::string_view asked = request.header("Access-Control-Request-Headers");
  const auto is_of_names = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  };
  if (!asked.empty() && asked.size() <= kNamesBytesMax && std::ranges::all_of(asked, is_of_names))
    return std::string(asked);
  return "Authorization, Content-Type, X-Request-Id, X-Api-Key, Anthropic-Version";
}

bool announces_body(const HttpRequest& request) {
  return request.is_chunked || request.find("Content-Length").value_or("0") != "0";
}

// A page can send text/plain, a form or bytes of no type to a stranger's server without asking it; for JSON
// its browser asks first. Programs that name no type mean JSON.
std::optional<ApiError> check_content_type(const HttpRequest& request) {
  if (!announces_body(request)) return std::nullopt;
  const std::string_view type = request.header("Content-Type");
  if (type.empty() && !is_from_page(request)) return std::nullopt;
  if (is_json_type(type)) return std::nullopt;
  return http_error(
      415,
      fmt::format("Content-Type: expected application/json, found '{}' (with curl: -H 'Content-Type: "
                  "application/json')",
                  utf8_prefix(type, 100)),
      "unsupported_media_type");
}

}  // namespace

Api::Api(ApiServices& services) : services_(services) {
  add_operations_endpoints(router_, services_);
  add_page_endpoints(router_, services_);
  add_models_endpoints(router_, services_);
  add_chat_endpoints(router_, services_);
  add_completions_endpoints(router_, services_);
  add_messages_endpoints(router_, services_);
  add_tokenize_endpoints(router_, services_);
  add_warm_endpoints(router_, services_);
  add_responses_endpoints(router_, services_);
  add_conversations_endpoints(router_, services_);
  add_unserved_endpoints(router_, services_);
  const Status described = add_openapi_endpoint(router_);  // the last: of what was added before
  LOCI_CHECK(described.ok(), described.message().c_str());
}

asio::awaitable<void> Api::handle(Exchange& exchange) {
  add_common_headers(exchange);
  const Router::Match match = router_.match(exchange.request().method, exchange.path());
  Call call{.exchange = exchange,
            .tenant = {},
            .ticket = {},
            .resumed = {},
            .prefill = {},
            .parameters = match.parameters,
            .error_style = match.error_style};
  // Anthropic's clients read the request's id from this header, of errors above all.
  if (match.error_style == ErrorStyle::kAnthropic) exchange.add_header("request-id", exchange.request_id());
  const bool is_traced = services_.tracer != nullptr && match.route != nullptr && !match.route->polled;
  if (is_traced)
    call.trace = services_.tracer->begin(traceparent_in(exchange.request()), exchange.received_at());
  std::string failed;
  try {
    co_await dispatch(call, match);
  } catch (const std::exception& error) {
    failed = error.what();
  }
  if (!failed.empty()) {
    log(*services_.log, spdlog::level::err,
        LogLine("request failed")
            .text("request_id", exchange.request_id())
            .text("path", utf8_prefix(exchange.path(), 500))
            .text("error", failed));
    // Once an answer has begun, all that is left is to end the connection.
    if (exchange.status() == 0)
      co_await call.fail(api_error(internal_error("the request failed: " + failed)));
  }
  const Nanos duration = services_.clock.now() - exchange.received_at();
  services_.metrics.request_done(match.pattern.empty() ? "other" : match.pattern, exchange.status(),
                                 duration);
  if (call.tenant) services_.metrics.tenant_request_done(call.tenant->id, exchange.status());
  // Strangers must not fill the collector.
  if (is_traced && exchange.status() != 401)
    end_spans(*services_.tracer, call, *match.route, exchange.received_at() + duration);
  if (services_.options.access_log) {
    const bool poll = match.route != nullptr && match.route->polled && exchange.status() < 400;
    log(*services_.log, poll ? spdlog::level::debug : spdlog::level::info, access_line(call, duration));
  }
}

void Api::add_common_headers(Exchange& exchange) const {
  const PageGuard& pages = services_.options.pages;
  if (pages.depends_on_origin()) exchange.add_header("Vary", "Origin");
  const std::string_view origin = pages.permission(exchange.request());
  if (origin.empty()) return;
  exchange.add_header("Access-Control-Allow-Origin", std::string(origin));
  exchange.add_header(
      "Access-Control-Expose-Headers",
      "X-Request-Id, Retry-After, X-RateLimit-Limit-Requests, X-RateLimit-Remaining-Requests, "
      "X-RateLimit-Reset-Requests, X-RateLimit-Limit-Tokens, X-RateLimit-Remaining-Tokens, "
      "X-RateLimit-Reset-Tokens");
}

asio::awaitable<void> Api::dispatch(Call& call, const Router::Match& match) {
  Exchange& exchange = call.exchange;
  exchange.give_way();
  if (!services_.tenants.has_keys()) {
    if (std::optional<ApiError> error = services_.options.pages.check(exchange.request())) {
      co_await call.fail(*std::move(error));
      co_return;
    }
  }
  const std::string_view hint = hint_for(exchange.path());
  if (match.allowed.empty()) {
    co_await call.fail(no_endpoint_error(
        exchange.path(), hint.empty() ? std::string_view("the API is described at /openapi.json") : hint));
  } else if (exchange.request().method == http::verb::options) {
    co_await answer_options(exchange, match);
  } else if (match.route == nullptr) {
    exchange.add_header("Allow", match.allowed);
    co_await call.fail(
        wrong_method_error(match.pattern, match.allowed, exchange.request().method_text, hint));
  } else {
    std::optional<ApiError> error = co_await check_caller(call, *match.route);
    if (error) {
      co_await call.fail(*std::move(error));
      co_return;
    }
    // What is open to all takes no body: those of strangers must not fill the room of all bodies.
    std::optional<ApiError> unread;
    if (match.route->access != Access::kOpen) unread = co_await exchange.read_body();
    if (unread) {
      co_await call.fail(*std::move(unread));
      co_return;
    }
    if (services_.served.load() != nullptr && services_.take_resumed) {
      call.resumed = services_.take_resumed(exchange.request());
      call.prefill = services_.read_prefill(exchange.request());
    }
    co_await match.route->handler(call);
  }
}

asio::awaitable<std::optional<ApiError>> Api::check_caller(Call& call, const Route& route) const {
  if (route.access == Access::kTenant && services_.draining.load()) co_return stopping_error();
  if (route.access != Access::kOpen) {
    auto tenant = services_.tenants.authenticate(call.exchange.request());
    if (auto* error = std::get_if<ApiError>(&tenant)) co_return std::move(*error);
    call.tenant = std::get<std::shared_ptr<const Tenant>>(std::move(tenant));
    call.exchange.keep_place();
    // (Without keys all clients are one tenant, and their addresses tell them apart.)
    if (services_.tenants.has_keys()) call.exchange.charge_to("tenant " + call.tenant->id);
  }
  if (route.access == Access::kOperator) {
    if (std::optional<ApiError> error = check_operator(call)) co_return error;
  }
  const bool reads_json = route.method == http::verb::post && route.body == BodyKind::kJson;
  if (reads_json) {
    if (std::optional<ApiError> error = check_content_type(call.exchange.request())) co_return error;
  }
  if (route.metering == Metering::kFree || route.metering == Metering::kByHandler) co_return std::nullopt;
  if (route.metering != Metering::kRequest) co_return services_.begin_reading(call, route.metering);
  // (Like take_resumed, it is set when the model has been loaded.)
  const bool was_lost =
      services_.served.load() != nullptr && services_.was_lost && services_.was_lost(call.exchange.request());
  TenantLimiter::Admission admission = co_await services_.limiter.begin(
      *call.tenant, was_lost ? TenantLimiter::Origin::kMoved : TenantLimiter::Origin::kClient);
  for (auto& [name, value] : admission.headers) call.exchange.set_header(name, value);
  if (auto* error = std::get_if<ApiError>(&admission.result)) co_return std::move(*error);
  call.ticket = std::get<TenantTicket>(std::move(admission.result));
  co_return std::nullopt;
}

// Without keys: whoever is on this machine, but for pages; a stranger's page that a browser shows here has
// this machine's address too.
std::optional<ApiError> Api::check_operator(const Call& call) const {
  if (services_.tenants.has_keys()) {
    if (call.tenant->is_operator) return std::nullopt;
    return http_error(403, "expected an operator's API key: one with operator = true in the file of keys",
                      "not_operator");
  }
  if (is_from_page(call.exchange.request())) {
    return http_error(403,
                      "a server without API keys takes this request from programs alone, and this one comes "
                      "from a web page (it has the header Origin)",
                      "not_operator");
  }
  if (call.exchange.is_local()) return std::nullopt;
  return http_error(403,
                    "a server without API keys takes this request from its own machine alone; to send it "
                    "from another one, give the server keys (option api_keys)",
                    "not_operator");
}

asio::awaitable<void> Api::answer_options(Exchange& exchange, const Router::Match& match) {
  HttpResponse response{.status = 204, .body = {}, .headers = {{"Allow", match.allowed}}};
  if (!services_.options.pages.permission(exchange.request()).empty()) {
    response.headers.emplace_back("Access-Control-Allow-Methods", match.allowed);
    response.headers.emplace_back("Access-Control-Allow-Headers", allowed_headers(exchange.request()));
    response.headers.emplace_back("Vary", "Access-Control-Request-Headers");
    response.headers.emplace_back("Access-Control-Max-Age", "86400");
  }
  co_await exchange.respond(std::move(response));
}

}  // namespace loci
