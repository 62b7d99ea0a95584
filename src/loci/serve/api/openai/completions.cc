// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions.
#include "loci/serve/api/openai/endpoints.h"
#include "loci/serve/api/openai/prepare_completions.h"
#include "loci/serve/call/call_sink.h"

namespace loci {
namespace asio = boost::asio;

namespace {

asio::awaitable<void> answer_completions(ApiServices& services, Call& call) {
  if (std::optional<ApiError> error = services.not_ready()) {
    co_await call.fail(*std::move(error));
    co_return;
  }
  const ServedModel& served = *services.served.load();
  const ReplyHead head{.id = "cmpl-" + call.exchange.request_id(),
                       .created = call.created_at(),
                       .model = served.model->id,
                       .fingerprint = served.fingerprint};
  const auto job = [&] {
    return prepare_completion(call.exchange.request().body, served, head, call.tenant->id);
  };
  Prepared prepared = co_await services.workers.run(call.tenant->id, job);
  if (auto* error = std::get_if<ApiError>(&prepared)) {
    co_await call.fail(std::move(*error));
    co_return;
  }
  auto generation = std::get<PreparedGeneration>(std::move(prepared));
  co_await run_generation(services, call, std::move(generation));
}

}  // namespace

void add_completions_endpoints(Router& router, ApiServices& services) {
  router.add({.method = boost::beast::http::verb::post,
              .pattern = "/v1/completions",
              .metering = Metering::kRequest,
              .handler = [&services](Call& call) { return answer_completions(services, call); }});
}

}  // namespace loci
