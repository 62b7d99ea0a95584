// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/store_answer.h"

#include <utility>
#include <variant>

namespace loci {
namespace asio = boost::asio;

namespace {

asio::awaitable<void> answer_charged(Call& call, Answer answer, ByteBudget::Charge& charge) {
  const auto* found = std::get_if<std::string>(&answer);
  if (found != nullptr && !charge.grow_to(found->size())) answer = too_many_answers();
  if (auto* body = std::get_if<std::string>(&answer)) {
    std::string text = std::move(*body);
    co_await call.answer(std::move(text));
  } else {
    ApiError error = std::get<ApiError>(std::move(answer));
    co_await call.fail(std::move(error));
  }
}

}  // namespace

asio::awaitable<void> answer_call(ApiServices& services, Call& call, Answer answer) {
  ByteBudget::Charge charge(services.answers, call.exchange.party());
  co_await answer_charged(call, std::move(answer), charge);
}

asio::awaitable<void> answer_from_store(ApiServices& services, Call& call, StoreJob job) {
  if (services.store == nullptr) {
    co_await call.fail(no_store_error());
    co_return;
  }
  ByteBudget::Charge charge(services.answers, call.exchange.party());
  const ReadRoom room = [&charge](std::uint64_t bytes) { return charge.grow_to(bytes); };
  const auto on_store = [&] { return job(*services.store, call.tenant->id, room); };
  Answer answer = co_await services.store_thread.run(call.tenant->id, on_store);
  co_await answer_charged(call, std::move(answer), charge);
}

}  // namespace loci
