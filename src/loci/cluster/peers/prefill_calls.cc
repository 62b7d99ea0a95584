// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/prefill_calls.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "loci/cluster/peers/peer_calls.h"
#include "loci/cluster/peers/prefill_wire.h"

namespace loci {
namespace asio = boost::asio;

namespace {

PrefillOutcome failure(PrefillEnd end, std::string why) { return {.end = end, .why = std::move(why)}; }

// That a message may take to be sent, beside silence: 10 MB a second, slower than any link over which
// bringing state pays.
Nanos sending(std::size_t bytes) { return static_cast<Nanos>(bytes) * 100; }

bool is_silence(const Status& status) { return status.code() == StatusCode::kDeadlineExceeded; }

// The lines of an answer.
class NewsReader {
 public:
  explicit NewsReader(PeerCalls::Line& line) : line_(line) {}
  // Errors: the connection's, and kDataLoss for what is no line.
  asio::awaitable<Result<PrefillNews>> next(Nanos limit) {
    std::size_t end = read_.find('\n');
    while (end == std::string::npos) {
      if (read_.size() > kPrefillLineBytesMax) co_return data_loss("it answers no line");
      const Result<std::string_view> piece = co_await line_.read_piece(limit);
      if (!piece.ok()) co_return piece.status();
      if (piece->empty()) co_return Status(StatusCode::kUnavailable, "its answer has no end");
      read_ += *piece;
      end = read_.find('\n');
    }
    const std::optional<PrefillNews> news = read_prefill_news(std::string_view(read_).substr(0, end));
    read_.erase(0, end + 1);
    if (!news) co_return data_loss("it answers no line");
    co_return *news;
  }

 private:
  PeerCalls::Line& line_;
  std::string read_;
};

PrefillOutcome outcome_of(const PrefillNews& news) {
  switch (news.says) {
    case PrefillNews::Says::kDone: return {.end = PrefillEnd::kDone, .computed = news.tokens, .why = {}};
    case PrefillNews::Says::kRefused: return failure(PrefillEnd::kRefused, "it refuses the prompt");
    case PrefillNews::Says::kUnable: return failure(PrefillEnd::kUnreached, "it computes nothing now");
    case PrefillNews::Says::kBroke:
    case PrefillNews::Says::kWaits:
    case PrefillNews::Says::kComputes: break;
  }
  return failure(PrefillEnd::kLost, "it broke off");
}

// Reads the answer, whose head has come, until it says how it ended.
asio::awaitable<PrefillOutcome> wait(PeerCalls::Line& line, const PrefillOrder& order, PeerList& peers) {
  using std::chrono::steady_clock;
  const auto begun = steady_clock::now();
  NewsReader reader(line);
  bool computes = false;
  std::uint32_t tokens = 0;  // that have state
  Nanos moved_at = 0;        // when it had begun, or more had
  while (true) {
    const Nanos waited = std::chrono::nanoseconds(steady_clock::now() - begun).count();
    const Nanos until = computes ? moved_at + order.progress_limit : order.place.begin_limit;
    const Nanos left = std::min(until, order.limit) - waited;
    if (left <= 0)
      co_return failure(PrefillEnd::kLate, !computes             ? "it does not begin in time"
                                           : until < order.limit ? "its device does not go on"
                                                                 : "it does not end in time");
    const Result<PrefillNews> news = co_await reader.next(std::min(left, order.place.silence_limit));
    if (!news.ok()) {
      const PrefillEnd end = !is_silence(news.status())          ? PrefillEnd::kLost
                             : left <= order.place.silence_limit ? PrefillEnd::kLate
                                                                 : PrefillEnd::kQuiet;
      co_return failure(end, news.status().message());
    }
    if (news->is_last()) co_return outcome_of(*news);
    const bool computed = std::exchange(computes, news->says == PrefillNews::Says::kComputes);
    if (!computed || news->tokens > tokens)
      moved_at = std::chrono::nanoseconds(steady_clock::now() - begun).count();
    tokens = news->tokens;
    if (order.stops && order.stops()) co_return failure(PrefillEnd::kNone, "this server stops");
    if (order.waits) co_await order.waits();
    if (news->tokens == 0) continue;
    peers.note_computed(order.place.host, order.place.port);
    if (order.ready) co_await order.ready(news->tokens);
  }
}

asio::awaitable<PrefillOutcome> ask(std::shared_ptr<PeerCalls> calls, PrefillOrder order,
                                    std::shared_ptr<PeerList> peers) {
  order.watch([calls] { calls->stop(); });
  const PrefillPlace& place = order.place;
  Result<std::unique_ptr<PeerCalls::Line>> line = co_await calls->connect(
      0, place.host, place.port, std::min(place.silence_limit, PeerCalls::kConnectLimit));
  if (!line.ok())
    co_return failure(is_silence(line.status()) ? PrefillEnd::kQuiet : PrefillEnd::kUnreached,
                      line.status().message());
  order.work.pulse = prefill_pulse(std::min(place.silence_limit, kPrefillSilenceMax));
  std::string body = write_prefill(order.work);
  order.work = {};  // the wait may be long
  const Status called =
      co_await (*line)->call(kPrefillPath, body, place.silence_limit + sending(body.size()));
  body = {};
  if (!called.ok())
    co_return failure(is_silence(called)        ? PrefillEnd::kQuiet
                      : (*line)->has_answered() ? PrefillEnd::kRefused
                                                : PrefillEnd::kUnreached,
                      called.message());
  PrefillOutcome outcome = co_await wait(**line, order, *peers);
  if (outcome.end == PrefillEnd::kDone) peers->note_computed(place.host, place.port);
  co_return outcome;
}

}  // namespace

AskForPrefill prefill_caller(TlsContext tls, std::string state, std::shared_ptr<PeerList> peers) {
  return [tls = std::move(tls), state = std::move(state), peers = std::move(peers)](PrefillOrder order) {
    auto calls = std::make_shared<PeerCalls>(order.io, tls, state);
    return ask(std::move(calls), std::move(order), peers);
  };
}

}  // namespace loci
