// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/hold_turn.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "loci/serve/api/responses/store_answer.h"
#include "loci/serve/api/responses/stored_objects.h"
#include "loci/serve/call/router.h"

namespace loci {
namespace asio = boost::asio;

namespace {

constexpr auto kPause = std::chrono::milliseconds(200);

asio::awaitable<std::variant<HeldTurn, ApiError>> try_to_hold(ApiServices& services, std::string tenant,
                                                              std::string conversation, std::string field,
                                                              std::string busy,
                                                              std::shared_ptr<WorkerLeave> leave) {
  std::optional<ConversationLock> lock = services.conversation_locks.take(tenant, conversation);
  if (!lock) co_return conversation_locked(field, busy);
  std::optional<std::int64_t> claim = 0;
  if (services.store != nullptr && services.turn_claims) {
    const auto job = [&] { return services.store->claim_turn(tenant, conversation); };
    const Result<std::optional<std::int64_t>> claimed =
        co_await services.store_thread.run(tenant, job, AtStandstill::kRefuse, leave);
    if (!claimed.ok()) co_return store_error(claimed.status());
    claim = *claimed;
  }
  if (!claim) co_return conversation_locked(field, busy);
  co_return HeldTurn(*std::move(lock), services.turn_claims, std::move(tenant), std::move(conversation),
                     *claim);
}

}  // namespace

asio::awaitable<std::variant<HeldTurn, ApiError>> hold_turn(ApiServices& services, Exchange& exchange,
                                                            std::string tenant, std::string conversation,
                                                            std::string field, std::string busy,
                                                            Nanos patience) {
  const Nanos until = services.clock.now() + patience;
  const auto leave = std::make_shared<WorkerLeave>();
  exchange.watch([leave] { leave->leave(); }, kHalfClosedPatience);
  std::variant<HeldTurn, ApiError> taken;
  for (;;) {
    taken = co_await try_to_hold(services, tenant, conversation, field, busy, leave);
    const ApiError* error = std::get_if<ApiError>(&taken);
    if (error == nullptr || error->http_status != 409 || services.clock.now() >= until || leave->has_left())
      break;
    asio::steady_timer pause(co_await asio::this_coro::executor, kPause);
    boost::system::error_code ignored;
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  co_await exchange.unwatch();
  co_return taken;
}

}  // namespace loci
