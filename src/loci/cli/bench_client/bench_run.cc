// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/bench_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "loci/base/check.h"
#include "loci/cluster/host_lookup.h"

namespace loci {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kProgressPeriod(200);

class Run {
 public:
  Run(const BenchOptions& options, const std::vector<Dialogue>& dialogues, const Clock& clock,
      ProgressListener progress);

  Status prepare();
  BenchResult run();

 private:
  // Then signals_ is cancelled. An interrupt does not wait for the system's resolver.
  HostLookup begin_to_prepare(BenchServer& server, Status& outcome);
  asio::awaitable<Status> prepare_one(BenchServer& server);
  Nanos now() const { return clock_.now() - epoch_; }
  void send(std::size_t server, TurnId turn);
  void on_end(std::size_t server, TurnRecord record);
  // One server: sends what may be sent, and comes back when more may be.
  void pump();
  // Two servers: the next round, or the round's other half.
  void next_round();
  void next_half();
  void on_half_end();
  std::size_t server_of_half() const { return (rounds_ + half_) % 2; }
  void report();
  // Until signals_ is cancelled, SIGINT ends io_'s run.
  void heed_interrupts();
  void finish();

  const BenchOptions& options_;
  const std::vector<Dialogue>& dialogues_;
  const Clock& clock_;
  ProgressListener progress_;
  asio::io_context io_{1};
  asio::signal_set signals_{io_};
  asio::steady_timer timer_{io_};
  asio::steady_timer progress_timer_{io_};
  TurnSchedule schedule_;
  std::vector<std::unique_ptr<BenchServer>> servers_;
  BenchResult result_;
  BenchProgress state_;
  Nanos epoch_ = 0;
  std::optional<Nanos> first_sent_;
  // Of the paired run.
  std::vector<TurnId> round_;
  std::vector<bool> round_failed_;
  std::size_t rounds_ = 0;
  std::size_t half_ = 0;
  std::size_t open_ = 0;
  Nanos half_begin_ = 0;
};

std::vector<std::uint32_t> turn_counts(const std::vector<Dialogue>& dialogues) {
  std::vector<std::uint32_t> out;
  for (const Dialogue& dialogue : dialogues) out.push_back(static_cast<std::uint32_t>(dialogue.turns.size()));
  return out;
}

Run::Run(const BenchOptions& options, const std::vector<Dialogue>& dialogues, const Clock& clock,
         ProgressListener progress)
    : options_(options),
      dialogues_(dialogues),
      clock_(clock),
      progress_(std::move(progress)),
      schedule_(options.schedule, turn_counts(dialogues)) {
  for (const Dialogue& dialogue : dialogues) state_.in_all += dialogue.turns.size() * options.urls.size();
}

asio::awaitable<Status> Run::prepare_one(BenchServer& server) {
  const Nanos patience = options_.patience;
  Status status = co_await server.greet(patience);
  if (!status.ok()) co_return status;
  Random random(~options_.schedule.seed);
  for (std::uint32_t i = 0; i < options_.warm_ups; ++i) {
    std::string text = make_words(random, 100);
    co_await server.warm_up(std::move(text));
  }
  co_return Status();
}

HostLookup Run::begin_to_prepare(BenchServer& server, Status& outcome) {
  const auto end = [this, &outcome](Status status) {
    outcome = std::move(status);
    signals_.cancel();
  };
  const auto go_on = [this, &server, end](const error_code& error, const HostLookup::Endpoints& found) {
    if (error)
      return end(Status(StatusCode::kUnavailable, fmt::format("{}: {}", server.url(), error.message())));
    server.found(found);
    asio::co_spawn(io_, prepare_one(server), [end](const std::exception_ptr& failure, Status status) {
      if (failure) std::rethrow_exception(failure);
      end(std::move(status));
    });
  };
  return HostLookup(io_, server.address().host, server.address().port_number(), go_on);
}

Status Run::prepare() {
  error_code ignored;
  signals_.add(SIGINT, ignored);
  for (const std::string& url : options_.urls) {
    LOCI_ASSIGN_OR_RETURN(std::unique_ptr<BenchServer> server,
                          BenchServer::open(url, options_.request, clock_));
    servers_.push_back(std::move(server));  // it outlives what an interrupt leaves of its calls
    Status outcome;
    heed_interrupts();
    const HostLookup lookup = begin_to_prepare(*servers_.back(), outcome);
    io_.run();
    io_.restart();
    if (result_.interrupted)
      return {StatusCode::kCancelled, "interrupted before the first request that counts"};
    LOCI_RETURN_IF_ERROR(outcome);
    result_.servers.push_back({.url = url, .model = servers_.back()->model()});
  }
  return {};
}

void Run::send(std::size_t server, TurnId turn) {
  ++state_.in_flight;
  if (!first_sent_) first_sent_ = now();
  std::optional<Nanos> due;
  if (options_.schedule.is_open_loop()) due = schedule_.due(turn.conversation);
  asio::co_spawn(io_, servers_[server]->run_turn(turn, due),
                 [this, server](const std::exception_ptr& failure, TurnRecord record) {
                   if (failure) std::rethrow_exception(failure);
                   on_end(server, std::move(record));
                 });
}

void Run::on_end(std::size_t server, TurnRecord record) {
  --state_.in_flight;
  ++state_.ended;
  state_.failed += record.error.empty() ? 0 : 1;
  state_.output_tokens += record.output_tokens;
  const TurnId id = record.id;
  const bool failed = !record.error.empty();
  result_.servers[server].turns.push_back(std::move(record));
  if (servers_.size() == 1) {
    if (failed)
      schedule_.abandon(id.conversation);
    else
      schedule_.end(id.conversation, now());
    return pump();
  }
  const auto at = std::ranges::find(round_, id) - round_.begin();
  if (failed) round_failed_[static_cast<std::size_t>(at)] = true;
  if (--open_ == 0) on_half_end();
}

void Run::pump() {
  while (const std::optional<TurnId> turn = schedule_.take(now())) send(0, *turn);
  if (schedule_.finished()) return finish();
  const Nanos at = schedule_.next_at();
  if (at == TurnSchedule::kWaiting) return;
  timer_.expires_after(std::chrono::nanoseconds(std::max<Nanos>(at - now(), 0)));
  timer_.async_wait([this](const error_code& error) {
    if (!error) pump();
  });
}

void Run::next_round() {
  round_.clear();
  while (const std::optional<TurnId> turn = schedule_.take(now())) round_.push_back(*turn);
  if (round_.empty()) return finish();
  round_failed_.assign(round_.size(), false);
  half_ = 0;
  next_half();
}

void Run::next_half() {
  open_ = round_.size();
  half_begin_ = now();
  const std::size_t server = server_of_half();
  for (const TurnId turn : round_) send(server, turn);
}

void Run::on_half_end() {
  ServerRun& run = result_.servers[server_of_half()];
  run.rounds.push_back(now() - half_begin_);
  run.busy += run.rounds.back();
  if (++half_ < 2) return next_half();
  ++rounds_;
  // A conversation that failed at the one has ended at both: they must be asked the same.
  for (std::size_t i = 0; i < round_.size(); ++i) {
    const std::uint32_t conversation = round_[i].conversation;
    if (round_failed_[i])
      schedule_.abandon(conversation);
    else
      schedule_.end(conversation, now());
  }
  next_round();
}

void Run::report() {
  if (!progress_) return;
  state_.elapsed = now();
  progress_(state_);
  progress_timer_.expires_after(kProgressPeriod);
  progress_timer_.async_wait([this](const error_code& error) {
    if (!error) report();
  });
}

void Run::finish() {
  if (servers_.size() == 1) result_.servers[0].busy = first_sent_ ? now() - *first_sent_ : 0;
  // An interrupt ends a half in the middle, whose first turns count.
  if (open_ > 0) result_.servers[server_of_half()].busy += now() - half_begin_;
  for (ServerRun& run : result_.servers) run.skipped = schedule_.skipped();
  timer_.cancel();
  progress_timer_.cancel();
  signals_.cancel();
}

void Run::heed_interrupts() {
  signals_.async_wait([this](const error_code& cancelled, int) {
    if (cancelled) return;
    result_.interrupted = true;
    io_.stop();
  });
}

BenchResult Run::run() {
  heed_interrupts();
  epoch_ = clock_.now();
  for (const auto& server : servers_) server->begin(dialogues_, epoch_);
  report();
  if (servers_.size() == 1)
    pump();
  else
    next_round();
  io_.run();
  if (result_.interrupted) finish();
  return std::move(result_);
}

}  // namespace

Result<BenchResult> run_bench(const BenchOptions& options, const std::vector<Dialogue>& dialogues,
                              const Clock& clock, ProgressListener progress) {
  LOCI_CHECK(options.urls.size() == 1 || options.urls.size() == 2, "one server, or two");
  Run run(options, dialogues, clock, std::move(progress));
  LOCI_RETURN_IF_ERROR(run.prepare());
  return run.run();
}

}  // namespace loci
