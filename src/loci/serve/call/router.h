// SPDX-License-Identifier: Apache-2.0
// Finds the handler of a request: routes with parameters, who may call them, and how their errors look.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/beast/http/verb.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/serve/call/access.h"
#include "loci/serve/generation/generation_summary.h"
#include "loci/serve/generation/prefill.h"
#include "loci/serve/generation/resumed_reply.h"
#include "loci/serve/http/exchange.h"
#include "loci/serve/telemetry/tracer.h"
#include "loci/serve/tenants/read_places.h"
#include "loci/serve/tenants/tenant_limiter.h"
#include "loci/serve/tenants/tenants.h"
#include "loci/serve/wire/api_error.h"

namespace loci {

// Whether a request counts against its tenant's limits.
enum class Metering : std::uint8_t {
  kFree,    // it tells of the server itself
  kRead,    // it reads what is stored, or follows what is being made: of these a tenant has so many at once
  kCancel,  // it ends a response that is being made: as kRead, and a few more than of those
  kByHandler,  // its handler counts it as kRequest, where it is this server's; it is as kCancel while that is
               // looked up
  kRequest,    // it computes or stores
};

// What the body of a request to a route is.
enum class BodyKind : std::uint8_t {
  kJson,  // another content type is refused
  kAny,   // not looked at
};

// One request on its way. Network thread only.
struct Call {
  Exchange& exchange;
  std::shared_ptr<const Tenant> tenant;  // of Access::kOpen: none
  std::optional<TenantTicket> ticket;    // of Metering::kRequest, until a generation takes it over
  std::optional<ResumedReply> resumed;   // of a request that a front sent, until a generation takes it over
  std::optional<PrefillPlace> prefill;   // of such a request: where its prompt is computed
  std::optional<ReadPlaces::Place> reading = {};  // of kRead and kCancel; of kByHandler for a while
  std::vector<std::string> parameters;  // what stood at the pattern's {names}, in order, percent-decoded
  ErrorStyle error_style = ErrorStyle::kOpenAi;
  // For the access log:
  std::optional<GenerationSummary> generation;  // once one has answered
  std::optional<ApiError> refusal;              // once fail() has
  std::optional<TracedRequest> trace = {};      // absent: nothing is traced

  // Of the reply, in seconds since 1970: a front's time, or now.
  std::int64_t created_at() const { return resumed ? resumed->created_at : seconds_since_1970(); }

  // Each answers the exchange.
  boost::asio::awaitable<void> fail(ApiError error);
  boost::asio::awaitable<void> answer(std::string json);
};

using Handler = std::function<boost::asio::awaitable<void>(Call&)>;

struct Route {
  boost::beast::http::verb method = boost::beast::http::verb::get;  // get answers HEAD too
  std::string pattern;                                              // "/v1/responses/{id}/cancel"
  Access access = Access::kTenant;
  ErrorStyle error_style = ErrorStyle::kOpenAi;
  BodyKind body = BodyKind::kJson;
  Metering metering = Metering::kFree;
  // Programs poll it: calls that succeed are logged at the level debug, and none is traced.
  bool polled = false;
  Handler handler;
};

// Filled before the first request; then immutable and thread-safe.
class Router {
 public:
  // A path that an earlier route's {name} would take as well ("/v1/responses/input_tokens") is added before
  // that one, and is its alone.
  void add(Route route);
  const std::vector<Route>& routes() const { return routes_; }

  struct Match {
    const Route* route = nullptr;  // null: no route at this path takes the method
    std::vector<std::string> parameters;
    std::string allowed;  // "GET, HEAD, OPTIONS": what the path takes; empty: nothing is there
    std::string pattern;  // of the path, for metrics
    ErrorStyle error_style = ErrorStyle::kOpenAi;
  };
  Match match(boost::beast::http::verb method, std::string_view path) const;

 private:
  std::vector<Route> routes_;
};

}  // namespace loci
