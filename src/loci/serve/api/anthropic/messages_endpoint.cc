// SPDX-License-Identifier: Apache-2.0
// POST /v1/messages, /v1/messages/count_tokens.
#include "loci/serve/api/anthropic/endpoints.h"
#include "loci/serve/api/anthropic/messages_format.h"
#include "loci/serve/api/anthropic/prepare_messages.h"
#include "loci/serve/call/call_sink.h"

namespace loci {
namespace asio = boost::asio;

namespace {

asio::awaitable<void> answer_messages(ApiServices& services, Call& call) {
  if (std::optional<ApiError> error = services.not_ready()) {
    co_await call.fail(*std::move(error));
    co_return;
  }
  const ServedModel& served = *services.served.load();
  const auto job = [&] {
    return prepare_messages(call.exchange.request().body, served, services.history, call.tenant->id);
  };
  Prepared prepared = co_await services.workers.run(call.tenant->id, job);
  if (auto* error = std::get_if<ApiError>(&prepared)) {
    co_await call.fail(std::move(*error));
    co_return;
  }
  auto generation = std::get<PreparedGeneration>(std::move(prepared));
  generation.format = make_messages_format("msg_" + call.exchange.request_id(), served.model->id);
  co_await run_generation(services, call, std::move(generation));
}

asio::awaitable<void> answer_count(ApiServices& services, Call& call) {
  const ServedModel* served = services.served.load();
  if (served == nullptr) {
    co_await call.fail(*services.not_ready());
    co_return;
  }
  const auto job = [&] {
    return count_message_tokens(call.exchange.request().body, *served, services.history, call.tenant->id);
  };
  std::variant<std::string, ApiError> result = co_await services.workers.run(call.tenant->id, job);
  if (auto* body = std::get_if<std::string>(&result))
    co_await call.answer(std::move(*body));
  else
    co_await call.fail(std::get<ApiError>(std::move(result)));
}

}  // namespace

void add_messages_endpoints(Router& router, ApiServices& services) {
  router.add({.method = boost::beast::http::verb::post,
              .pattern = "/v1/messages",
              .error_style = ErrorStyle::kAnthropic,
              .metering = Metering::kRequest,
              .handler = [&services](Call& call) { return answer_messages(services, call); }});
  router.add({.method = boost::beast::http::verb::post,
              .pattern = "/v1/messages/count_tokens",
              .error_style = ErrorStyle::kAnthropic,
              .metering = Metering::kRequest,
              .handler = [&services](Call& call) { return answer_count(services, call); }});
}

}  // namespace loci
