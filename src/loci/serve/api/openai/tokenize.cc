// SPDX-License-Identifier: Apache-2.0
// POST /tokenize, /detokenize.
#include "loci/serve/api/openai/endpoints.h"
#include "loci/serve/api/openai/tokens.h"

namespace loci {
namespace asio = boost::asio;

namespace {

using Transformer = std::variant<std::string, ApiError> (*)(std::string_view, const ServedModel&);

asio::awaitable<void> transform(ApiServices& services, Call& call, Transformer transformer) {
  const ServedModel* served = services.served.load();
  if (served == nullptr) {
    co_await call.fail(*services.not_ready());
    co_return;
  }
  const auto job = [&] { return transformer(call.exchange.request().body, *served); };
  std::variant<std::string, ApiError> result = co_await services.workers.run(call.tenant->id, job);
  call.exchange.drop_body();
  // It may be a hundred times as large as the body, and its client may take it slowly.
  ByteBudget::Charge charge(services.answers, call.exchange.party());
  const auto* found = std::get_if<std::string>(&result);
  if (found != nullptr && !charge.grow_to(found->size())) result = too_many_answers();
  if (auto* body = std::get_if<std::string>(&result))
    co_await call.answer(std::move(*body));
  else
    co_await call.fail(std::get<ApiError>(std::move(result)));
}

}  // namespace

void add_tokenize_endpoints(Router& router, ApiServices& services) {
  const auto add = [&](const char* path, Transformer transformer) {
    router.add(
        {.method = boost::beast::http::verb::post,
         .pattern = path,
         .metering = Metering::kRequest,
         .handler = [&services, transformer](Call& call) { return transform(services, call, transformer); }});
  };
  add("/tokenize", &tokenize);
  add("/detokenize", &detokenize);
}

}  // namespace loci
