// SPDX-License-Identifier: Apache-2.0
// GET / and the page's files.
#include "loci/serve/api/loci/endpoints.h"
#include "loci/serve/page/page.h"

namespace loci {
namespace asio = boost::asio;

namespace {

asio::awaitable<void> answer_page(Call& call) {
  Exchange& exchange = call.exchange;
  std::optional<HttpResponse> response = page_response(exchange.path(), exchange.request());
  if (!response) {
    co_await call.fail(http_error(404, "the page has no file of this name", "not_found"));
    co_return;
  }
  co_await exchange.respond(*std::move(response));
}

}  // namespace

void add_page_endpoints(Router& router, ApiServices& services) {
  if (!services.options.page) return;
  for (const char* pattern : {"/", "/page/{file}"})
    router.add({.pattern = pattern, .access = Access::kOpen, .polled = true, .handler = answer_page});
}

}  // namespace loci
