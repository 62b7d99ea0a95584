// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/prefill_calls.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "loci/cluster/peers/peer_calls.h"
#include "loci/cluster/peers/prefill_wire.h"

namespace loci {
namespace asio = boost::asio;

namespace {

constexpr Nanos kSilenceLimit = 3 * kNanosPerSecond;  // it says something each kPrefillPulse

// Reads the answer, whose head has come, until it says how it ended.
asio::awaitable<Status> wait(PeerCalls::Line& line, Nanos limit) {
  using std::chrono::steady_clock;
  const auto until = steady_clock::now() + std::chrono::nanoseconds(limit);
  while (true) {
    const Nanos left = std::chrono::nanoseconds(until - steady_clock::now()).count();
    if (left <= 0) co_return Status(StatusCode::kDeadlineExceeded, "it does not end in time");
    const Result<std::string_view> piece = co_await line.read_piece(std::min(left, kSilenceLimit));
    if (!piece.ok()) co_return piece.status();
    if (!piece->empty() && piece->back() == kPrefillGoesOn) continue;
    if (!piece->empty() && piece->back() == kPrefillDone) co_return Status();
    co_return Status(StatusCode::kUnavailable, "it gave up");
  }
}

asio::awaitable<Status> ask(std::shared_ptr<PeerCalls> calls, PrefillOrder order,
                            std::shared_ptr<PeerList> peers) {
  order.watch([calls] { calls->stop(); });
  const PrefillPlace& place = order.place;
  Result<std::unique_ptr<PeerCalls::Line>> line = co_await calls->connect(0, place.host, place.port);
  if (!line.ok()) co_return line.status();
  const std::string body = write_prefill(order.work);
  const Status called = co_await (*line)->call(kPrefillPath, body, kSilenceLimit);
  if (!called.ok()) co_return called;
  const Status ended = co_await wait(**line, place.limit);
  if (ended.ok()) peers->note_computed(place.host, place.port);
  co_return ended;
}

}  // namespace

AskForPrefill prefill_caller(TlsContext tls, std::string state, std::shared_ptr<PeerList> peers) {
  return [tls = std::move(tls), state = std::move(state), peers = std::move(peers)](PrefillOrder order) {
    auto calls = std::make_shared<PeerCalls>(order.io, tls, state);
    return ask(std::move(calls), std::move(order), peers);
  };
}

}  // namespace loci
