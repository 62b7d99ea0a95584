#include "loci/serve/api.h"

#include <fmt/format.h>

#include <exception>

#include "loci/base/units.h"
#include "loci/serve/endpoints/endpoints.h"
#include "loci/serve/request/json_parse.h"

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;

Api::Api(ApiServices& services) : services_(services) {
  add_operations_endpoints(router_, services_);
  add_models_endpoints(router_, services_);
  add_chat_endpoints(router_, services_);
  add_completions_endpoints(router_, services_);
  add_messages_endpoints(router_, services_);
  add_tokenize_endpoints(router_, services_);
}

asio::awaitable<void> Api::handle(Exchange& exchange) {
  add_common_headers(exchange);
  const Router::Match match = router_.match(exchange.request().method(), exchange.path());
  std::string failed;
  try {
    co_await dispatch(exchange, match);
  } catch (const std::exception& error) {
    failed = error.what();
  }
  if (!failed.empty()) {
    services_.log->error("{} {}: {}", exchange.request_id(), visible_ascii(exchange.path()), failed);
    // Once an answer has begun, all that is left is to end the connection.
    if (exchange.status() == 0) {
      Call call{.exchange = exchange, .tenant = {}, .parameters = {}, .error_style = match.error_style};
      co_await call.fail(api_error(internal_error("the request failed: " + failed)));
    }
  }
  const Nanos duration = services_.clock.now() - exchange.received_at();
  services_.metrics.request_done(match.pattern.empty() ? "other" : match.pattern, exchange.status(),
                                 duration);
  services_.log->debug("{} {} {} {} {}", exchange.request_id(),
                       std::string_view(exchange.request().method_string()), visible_ascii(exchange.path()),
                       exchange.status(), format_duration(duration));
}

void Api::add_common_headers(Exchange& exchange) const {
  const std::string& origin = services_.options.cors_origin;
  if (origin.empty()) return;
  exchange.add_header("Access-Control-Allow-Origin", origin);
  exchange.add_header("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  if (origin != "*") exchange.add_header("Vary", "Origin");
}

asio::awaitable<void> Api::dispatch(Exchange& exchange, const Router::Match& match) {
  Call call{
      .exchange = exchange, .tenant = {}, .parameters = match.parameters, .error_style = match.error_style};
  if (match.allowed.empty()) {
    co_await call.fail(http_error(
        404, fmt::format("there is nothing at '{}'; see docs/http-api.md", utf8_prefix(exchange.path(), 200)),
        "not_found"));
  } else if (exchange.request().method() == http::verb::options) {
    co_await answer_options(exchange, match);
  } else if (match.route == nullptr) {
    exchange.add_header("Allow", match.allowed);
    co_await call.fail(http_error(405,
                                  fmt::format("{} takes {}; got {}", match.pattern, match.allowed,
                                              std::string_view(exchange.request().method_string())),
                                  "method_not_allowed"));
  } else {
    if (match.route->access == Access::kTenant) {
      auto tenant = services_.tenants.authenticate(exchange.request());
      if (auto* error = std::get_if<ApiError>(&tenant)) {
        co_await call.fail(std::move(*error));
        co_return;
      }
      call.tenant = std::get<std::shared_ptr<const Tenant>>(std::move(tenant));
    }
    co_await match.route->handler(call);
  }
}

asio::awaitable<void> Api::answer_options(Exchange& exchange, const Router::Match& match) {
  HttpResponse response{.status = 204, .body = {}, .headers = {{"Allow", match.allowed}}};
  if (!services_.options.cors_origin.empty()) {
    response.headers.emplace_back("Access-Control-Allow-Methods", match.allowed);
    response.headers.emplace_back("Access-Control-Allow-Headers",
                                  "Authorization, Content-Type, X-Request-Id, X-Api-Key, Anthropic-Version");
    response.headers.emplace_back("Access-Control-Max-Age", "86400");
  }
  co_await exchange.respond(std::move(response));
}

}  // namespace loci
