// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/store_answer.h"

#include <memory>
#include <utility>
#include <variant>

#include "loci/serve/wire/api_error.h"

namespace loci {
namespace asio = boost::asio;

namespace {

// Whether the call may be refused for its answer's size. A write has been made by then: a client that is told
// to try again would write twice. Its answer is about as large as its body, which had room. (To cancel twice
// does no harm, and the answer may be a stored response of any size.)
bool may_refuse_answer(const Call& call) {
  return call.exchange.request().method == boost::beast::http::verb::get || call.reading.has_value();
}

asio::awaitable<void> answer_charged(Call& call, Answer answer, ByteBudget::Charge& charge) {
  const auto* found = std::get_if<std::string>(&answer);
  if (found != nullptr && !charge.grow_to(found->size()) && may_refuse_answer(call))
    answer = too_many_answers();
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
  return answer_from_store(services, call, std::move(job), WorkerJob());
}

asio::awaitable<void> answer_from_store(ApiServices& services, Call& call, StoreJob job, WorkerJob then) {
  if (services.store == nullptr) {
    co_await call.fail(no_store_error());
    co_return;
  }
  ByteBudget::Charge charge(services.answers, call.exchange.party());
  const ReadRoom room = [&charge](std::uint64_t bytes) { return charge.grow_to(bytes); };
  bool has_begun = false;
  const auto on_store = [&] {
    has_begun = true;
    return job(*services.store, call.tenant->id, room);
  };
  // A client that leaves while its job waits for a thread takes no place of a connection any more.
  const auto leave = std::make_shared<WorkerLeave>();
  call.exchange.watch([leave] { leave->leave(); }, kHalfClosedPatience);
  Answer answer = co_await services.store_thread.run(call.tenant->id, on_store, AtStandstill::kRefuse, leave);
  co_await call.exchange.unwatch();
  const auto on_worker = [&then] {
    then();
    return true;
  };
  if (then) co_await services.workers.run(call.tenant->id, on_worker);
  if (has_begun) call.exchange.answer_half_closed();
  co_await answer_charged(call, std::move(answer), charge);
}

}  // namespace loci
