// SPDX-License-Identifier: Apache-2.0
// The HTTP API: every endpoint, and what all of them have in common (keys, errors, CORS, metrics). See
// docs/http-api.md.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>

#include "loci/serve/call/router.h"
#include "loci/serve/call/services.h"
#include "loci/serve/http/exchange.h"

namespace loci {

// handle(): network thread.
class Api {
 public:
  // `services` outlives the API.
  explicit Api(ApiServices& services);

  // Answers one exchange; never throws.
  boost::asio::awaitable<void> handle(Exchange& exchange);
  const Router& router() const { return router_; }  // every endpoint there is

 private:
  boost::asio::awaitable<void> dispatch(Call& call, const Router::Match& match);
  boost::asio::awaitable<void> answer_options(Exchange& exchange, const Router::Match& match);
  void add_common_headers(Exchange& exchange) const;
  // Refuses a call by its header alone, before its body is read. Errors: 401, 403, 415, 429, 503.
  boost::asio::awaitable<std::optional<ApiError>> check_caller(Call& call, const Route& route) const;
  std::optional<ApiError> check_operator(const Call& call) const;

  ApiServices& services_;
  Router router_;
};

}  // namespace loci
