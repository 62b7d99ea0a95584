// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/unstored_ends.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>
#include <vector>

namespace loci {
namespace asio = boost::asio;

namespace {

// kNotFound: the response, or what it continues, was deleted. kInvalidArgument: it has ended already (an
// earlier attempt came through after all), or it will never be taken.
bool may_be_taken_later(const Status& status) {
  return !status.ok() && status.code() != StatusCode::kNotFound &&
         status.code() != StatusCode::kInvalidArgument;
}

std::size_t bytes_of(const StoredTurn& turn) {
  std::size_t bytes = sizeof(StoredTurn) + turn.response.json.size();
  for (const std::vector<StoredItem>* items : {&turn.input, &turn.output}) {
    for (const StoredItem& item : *items) bytes += sizeof(StoredItem) + item.id.size() + item.json.size();
  }
  return bytes;
}

// An exception says as little about the next attempt as a disk that is full.
template <class Write>
Status without_exceptions(const Write& write) {
  try {
    return write();
  } catch (const std::exception& error) {
    return internal_error(error.what());
  }
}

}  // namespace

asio::awaitable<Status> UnstoredEnds::commit(const std::string& tenant, const StoredTurn& turn) {
  const auto job = [&] {
    return without_exceptions([&] { return services_.store->commit_turn(tenant, turn); });
  };
  co_return co_await services_.store_thread.run(tenant, job, AtStandstill::kWait);
}

asio::awaitable<Status> UnstoredEnds::commit_late(const End& end) {
  const auto job = [&] {
    return without_exceptions([&]() -> Status {
      const Result<StoredResponse> stored = services_.store->response(end.tenant, end.turn.response.id);
      if (!stored.ok()) return stored.status();
      return services_.store->commit_turn(end.tenant, end.turn);
    });
  };
  co_return co_await services_.store_thread.run(end.tenant, job, AtStandstill::kWait);
}

asio::awaitable<void> UnstoredEnds::store(std::string tenant, StoredTurn turn) {
  const Status status = co_await commit(tenant, turn);
  if (status.ok()) co_return;
  const bool later = may_be_taken_later(status);
  const std::size_t bytes = bytes_of(turn);
  const bool fits = size_bytes_ + bytes <= kBytesMax;
  const char* outcome = !later ? "it stays as it is"
                        : fits ? "this is tried again"
                               : "too many ends wait: it stays in progress until the next start";
  services_.log->error("{} can't be stored as {}: {}; {}", turn.response.id, turn.response.status,
                       status.to_string(), outcome);
  if (!later || !fits) co_return;
  turn.claim = 0;  // it may end, or be another server's, before the store is back
  ends_.push_back({.tenant = std::move(tenant), .turn = std::move(turn), .size_bytes = bytes});
  size_bytes_ += bytes;
  if (is_trying_) co_return;
  is_trying_ = true;
  asio::co_spawn(co_await asio::this_coro::executor, try_again(), asio::detached);
}

asio::awaitable<void> UnstoredEnds::try_again() {
  const auto self = shared_from_this();  // the API may go first
  while (!ends_.empty()) {
    asio::steady_timer pause(co_await asio::this_coro::executor, kStorePause);
    boost::system::error_code ignored;
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    bool goes_on = true;
    while (goes_on && !ends_.empty()) {
      const Status status = co_await commit_late(ends_.front());
      End end = std::move(ends_.front());
      ends_.pop_front();
      goes_on = !may_be_taken_later(status);
      if (!goes_on) {
        // Others are tried before it: it alone may be what the store does not take.
        ends_.push_back(std::move(end));
        continue;
      }
      size_bytes_ -= end.size_bytes;
      services_.log->info("{} is no longer to be stored as {}: {}", end.turn.response.id,
                          end.turn.response.status, status.ok() ? "it was stored" : status.to_string());
    }
  }
  is_trying_ = false;
}

std::optional<StoredResponse> UnstoredEnds::find(std::string_view tenant, std::string_view id) const {
  const auto is_it = [&](const End& end) { return end.tenant == tenant && end.turn.response.id == id; };
  const auto at = std::find_if(ends_.begin(), ends_.end(), is_it);
  if (at == ends_.end()) return std::nullopt;
  return at->turn.response;
}

}  // namespace loci
