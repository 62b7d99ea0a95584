// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/hold_turn.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "loci/serve/api/responses/stored_objects.h"

namespace loci {
namespace asio = boost::asio;

asio::awaitable<std::variant<HeldTurn, ApiError>> hold_turn(ApiServices& services, std::string tenant,
                                                            std::string conversation, std::string field,
                                                            std::string busy) {
  std::optional<ConversationLock> lock = services.conversation_locks.take(tenant, conversation);
  if (!lock) co_return conversation_locked(field, busy);
  std::optional<std::int64_t> claim = 0;
  if (services.store != nullptr && services.turn_claims) {
    const auto job = [&] { return services.store->claim_turn(tenant, conversation); };
    const Result<std::optional<std::int64_t>> claimed = co_await services.store_thread.run(tenant, job);
    if (!claimed.ok()) co_return api_error(claimed.status());
    claim = *claimed;
  }
  if (!claim) co_return conversation_locked(field, busy);
  co_return HeldTurn(*std::move(lock), services.turn_claims, std::move(tenant), std::move(conversation),
                     *claim);
}

}  // namespace loci
