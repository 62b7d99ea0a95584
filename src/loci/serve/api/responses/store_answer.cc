// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/store_answer.h"

#include <utility>
#include <variant>

namespace loci {
namespace asio = boost::asio;

asio::awaitable<void> answer_call(Call& call, Answer answer) {
  if (auto* body = std::get_if<std::string>(&answer)) {
    std::string text = std::move(*body);
    co_await call.answer(std::move(text));
  } else {
    ApiError error = std::get<ApiError>(std::move(answer));
    co_await call.fail(std::move(error));
  }
}

asio::awaitable<void> answer_from_store(ApiServices& services, Call& call, StoreJob job) {
  if (services.store == nullptr) {
    co_await call.fail(no_store_error());
    co_return;
  }
  const auto on_store = [&] { return job(*services.store, call.tenant->id); };
  Answer answer = co_await services.store_thread.run(call.tenant->id, on_store);
  co_await answer_call(call, std::move(answer));
}

}  // namespace loci
