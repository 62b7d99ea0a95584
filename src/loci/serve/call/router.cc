// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/call/router.h"

#include <algorithm>
#include <optional>

#include "loci/base/check.h"
#include "loci/serve/http/path_pattern.h"

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

// "/v1/messages/batches" of "/v1/messages".
bool is_below(std::string_view path, std::string_view pattern) {
  return path.starts_with(pattern) && path.substr(pattern.size()).starts_with('/');
}

bool takes(const Route& route, http::verb method) {
  return route.method == method || (route.method == http::verb::get && method == http::verb::head);
}

}  // namespace

asio::awaitable<void> Call::fail(ApiError error) {
  HttpResponse response{.status = error.http_status, .body = to_json(error, error_style), .headers = {}};
  if (error.retry_after_seconds) {
    response.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_seconds));
  }
  // Official clients send what got a 408 twice again; what took too long once would take as long again.
  if (error.code == "deadline_exceeded") response.headers.emplace_back("X-Should-Retry", "false");
  if (!error.owner.empty()) response.headers.emplace_back(kOwnerHeader, error.owner);
  refusal = std::move(error);
  co_await exchange.respond(std::move(response));
}

asio::awaitable<void> Call::answer(std::string json) {
  HttpResponse response{.body = std::move(json), .headers = {}};
  co_await exchange.respond(std::move(response));
}

void Router::add(Route route) {
  LOCI_CHECK(route.pattern.starts_with('/') && route.handler, "a route has a path and a handler");
  const auto hides = [&](const Route& earlier) {
    return earlier.pattern != route.pattern && parameters_of(earlier.pattern, route.pattern);
  };
  LOCI_CHECK(std::ranges::none_of(routes_, hides), "no earlier route has the path of a later one");
  routes_.push_back(std::move(route));
}

Router::Match Router::match(http::verb method, std::string_view path) const {
  Match out;
  if (!path.starts_with('/')) return out;
  for (const Route& route : routes_) {
    if (!out.pattern.empty() && route.pattern != out.pattern) continue;
    std::optional<std::vector<std::string>> parameters = parameters_of(route.pattern, path);
    if (!parameters) continue;
    out.pattern = route.pattern;
    out.error_style = route.error_style;
    if (!out.allowed.empty()) out.allowed += ", ";
    out.allowed += std::string(http::to_string(route.method));
    if (route.method == http::verb::get) out.allowed += ", HEAD";
    if (out.route == nullptr && takes(route, method)) {
      out.route = &route;
      out.parameters = *std::move(parameters);
    }
  }
  if (!out.allowed.empty()) {
    out.allowed += ", OPTIONS";
    return out;
  }
  // A client that asks for what its API has elsewhere reads the error as all others of that API.
  for (const Route& route : routes_) {
    if (is_below(path, route.pattern)) out.error_style = route.error_style;
  }
  return out;
}

}  // namespace loci
