// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/background.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <map>
#include <string_view>
#include <tuple>

#include "loci/serve/call/access_log.h"
#include "loci/serve/call/call_spans.h"
#include "loci/serve/generation/counted.h"
#include "loci/serve/generation/run_generation.h"
#include "loci/serve/wire/sse.h"

namespace loci {
namespace asio = boost::asio;

// --- the events of all runs ---

void BackgroundEvents::leave(BackgroundRun& run) { std::erase(runs_, &run); }

void BackgroundEvents::make_room(const BackgroundRun& run) {
  const auto spare = [&](const BackgroundRun* one) {
    return one->event_bytes() - (one == &run ? one->last_bytes() : 0);
  };
  while (size_bytes_ > bytes_max_) {
    std::map<std::string_view, std::size_t> of_tenant;
    for (const BackgroundRun* one : runs_) of_tenant[one->tenant()] += spare(one);
    const auto rank = [&](const BackgroundRun* one) {
      return std::tuple(of_tenant[one->tenant()], one->tenant(), spare(one));
    };
    BackgroundRun* const most = *std::ranges::max_element(runs_, {}, rank);
    if (spare(most) == 0) return;
    most->give_up((spare(most) + 1) / 2);
  }
}

// --- one run ---

BackgroundRun::BackgroundRun(asio::io_context& io, std::shared_ptr<BackgroundEvents> all, std::string tenant)
    : all_(std::move(all)),
      tenant_(std::move(tenant)),
      signal_(std::in_place, io, asio::steady_timer::time_point::max()) {
  all_->join(*this);
}

BackgroundRun::~BackgroundRun() {
  all_->shrink(event_bytes_);
  all_->leave(*this);
}

std::string BackgroundRun::read(Position& at, std::size_t bytes_max) const {
  std::string out;
  while (at.event < next_event() && out.size() < bytes_max) {
    const std::string& event = events_[at.event - first_];
    const std::size_t count = std::min(event.size() - at.offset, bytes_max - out.size());
    out.append(event, at.offset, count);
    at.offset += count;
    if (at.offset == event.size()) at = {.event = at.event + 1, .offset = 0};
  }
  return out;
}

void BackgroundRun::append(std::string_view events) {
  if (event_bytes_ > kEventBytesMax) give_up(event_bytes_ - kEventBytesMax);
  last_bytes_ = events.size();
  event_bytes_ += last_bytes_;
  all_->grow(last_bytes_);
  while (!events.empty()) {
    const std::size_t end = events.find("\n\n");
    const std::string_view event = events.substr(0, end == std::string_view::npos ? end : end + 2);
    events_.emplace_back(event);
    events.remove_prefix(event.size());
  }
  all_->make_room(*this);
  wake();
}

void BackgroundRun::give_up(std::size_t bytes) {
  std::size_t dropped = 0;
  for (; dropped < bytes; ++first_) {
    dropped += events_.front().size();
    events_.pop_front();
  }
  event_bytes_ -= dropped;
  last_bytes_ = std::min(last_bytes_, event_bytes_);
  all_->shrink(dropped);
}

void BackgroundRun::end() {
  ended_ = true;
  on_cancel_ = nullptr;
  signal_.reset();  // wakes who waits
}

void BackgroundRun::on_cancel(std::function<void()> callback) {
  if (cancelled_)
    callback();
  else
    on_cancel_ = std::move(callback);
}

void BackgroundRun::cancel() {
  if (ended_ || cancelled_) return;
  cancelled_ = true;
  if (on_cancel_) on_cancel_();
}

asio::awaitable<void> BackgroundRun::wait() {
  if (!signal_) co_return;
  boost::system::error_code ignored;
  co_await signal_->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

void BackgroundRun::wake() {
  if (signal_) signal_->cancel();
}

namespace {

// Bytes of a stream: all that a client which reads slowly takes of the server's memory.
constexpr std::size_t kFollowedAtOnce = 64 << 10;

// Ends a run with the coroutine that makes it, also where that is destroyed with the network.
class EndOfRun {
 public:
  explicit EndOfRun(std::shared_ptr<BackgroundRun> run) : run_(std::move(run)) {}
  ~EndOfRun() { run_->end(); }
  EndOfRun(const EndOfRun&) = delete;
  EndOfRun& operator=(const EndOfRun&) = delete;

 private:
  std::shared_ptr<BackgroundRun> run_;
};

// Writes to the run's events.
class BackgroundSink final : public ReplySink {
 public:
  BackgroundSink(ApiServices& services, ReplyOrigin origin, std::shared_ptr<BackgroundRun> run,
                 std::function<asio::awaitable<Status>()> accepted)
      : ReplySink(std::move(origin)),
        services_(services),
        run_(std::move(run)),
        accepted_(std::move(accepted)),
        charge_(services.answers, "tenant " + this->origin().tenant->id) {}

  int status() const override { return error_ ? error_->http_status : 200; }
  const std::optional<ApiError>& error() const { return error_; }

  // What runs in the background is a stream, whoever reads it: each of its events is kept and has a number.
  bool has_reader() const override { return false; }
  asio::awaitable<bool> respond(std::string) override { co_return !gone(); }
  asio::awaitable<bool> begin_stream() override {
    // That it runs is worth knowing, and no reason to end it where it can't be written.
    const Status ignored = co_await accepted_();
    co_return !gone();
  }
  asio::awaitable<bool> stream(std::string_view events) override {
    run_->append(events);
    co_return !gone();
  }
  asio::awaitable<bool> end_stream() override { co_return !gone(); }
  asio::awaitable<void> fail(ApiError error) override {
    error_ = std::move(error);
    co_return;
  }

  bool hold(std::uint64_t bytes) override { return charge_.grow_to(bytes); }
  bool gone() const override { return run_->cancelled(); }
  void watch(std::function<void()> on_gone) override { run_->on_cancel(std::move(on_gone)); }
  void account(const GenerationSummary& summary) override {
    if (services_.tracer != nullptr)
      end_background_spans(*services_.tracer, origin(), summary, error_.has_value());
    if (!services_.options.access_log) return;
    log(*services_.log, spdlog::level::info,
        background_line(origin().request_id, origin().path, origin().tenant->id, summary));
  }

 private:
  ApiServices& services_;
  std::shared_ptr<BackgroundRun> run_;
  std::function<asio::awaitable<Status>()> accepted_;
  ByteBudget::Charge charge_;
  std::optional<ApiError> error_;
};

}  // namespace

// --- all of them ---

std::shared_ptr<BackgroundRun> BackgroundResponses::find(const std::string& tenant,
                                                         const std::string& id) const {
  const auto at = runs_.find(Key(tenant, id));
  return at == runs_.end() ? nullptr : at->second;
}

asio::awaitable<Status> BackgroundResponses::store(std::string tenant, StoredTurn turn) {
  const auto job = [&] { return services_.store->commit_turn(tenant, turn); };
  Status status = co_await services_.store_thread.run(tenant, job);
  if (!status.ok()) {
    services_.log->error("{} can't be stored as {}: {}", turn.response.id, turn.response.status,
                         status.to_string());
  }
  co_return status;
}

asio::awaitable<std::optional<ApiError>> BackgroundResponses::start(ReplyOrigin origin,
                                                                    PreparedResponse prepared,
                                                                    HeldTurn held) {
  std::string tenant = origin.tenant->id;
  const Key key(tenant, prepared.turn->record->head().id);
  // A front names responses. Of two that are named alike the second would be told as the first's.
  auto begun = std::make_shared<BackgroundRun>(origin.io, events_, tenant);
  if (!runs_.emplace(key, begun).second)
    co_return http_error(409, fmt::format("there is a response '{}' already", key.second), "already_exists");
  StoredTurn waiting = prepared.turn->waiting("queued");
  const Status status = co_await store(std::move(tenant), std::move(waiting));
  if (!status.ok()) {
    runs_.erase(key);
    begun->end();
    co_return store_error(status);
  }

  // The stream is written whoever reads it, so that it can be read later.
  prepared.generation.fields.stream = true;
  auto format = std::make_unique<ResponsesFormat>(prepared.turn->record);
  begun->append(format->queued());
  prepared.generation.format = std::move(format);
  asio::io_context& io = origin.io;
  asio::co_spawn(io, run(begun, std::move(origin), std::move(prepared), std::move(held)), asio::detached);
  co_return std::nullopt;
}

asio::awaitable<void> BackgroundResponses::run(std::shared_ptr<BackgroundRun> run, ReplyOrigin origin,
                                               PreparedResponse prepared, HeldTurn held) {
  const auto self = shared_from_this();  // the API may go first
  const Counted open(services_.open_work);
  const EndOfRun end(run);
  const std::shared_ptr<const ResponseTurn> turn = prepared.turn;
  const Key key(origin.tenant->id, turn->record->head().id);
  std::optional<std::string> failed;
  try {
    co_await make(run, std::move(origin), std::move(prepared));
  } catch (const std::exception& error) {
    failed = error.what();
  }
  if (failed) {
    services_.log->error("{} failed: {}", key.second, *failed);
    std::string owner = key.first;
    co_await give_up(*run, std::move(owner), turn);
  }
  held = HeldTurn();
  run->end();
  retire(key);
}

asio::awaitable<void> BackgroundResponses::make(std::shared_ptr<BackgroundRun> run, ReplyOrigin origin,
                                                PreparedResponse prepared) {
  const std::shared_ptr<const ResponseTurn> turn = prepared.turn;
  const std::shared_ptr<ResponseRecord> record = turn->record;
  const std::string tenant = origin.tenant->id;
  const auto accepted = [this, tenant, turn] { return store(tenant, turn->waiting("in_progress")); };
  BackgroundSink sink(services_, std::move(origin), run, accepted);
  const bool there = co_await run_generation(services_, sink, std::move(prepared.generation));
  if (sink.error()) {
    // Refused before it began: the stream has not been told.
    const std::uint64_t number = run->next_event();
    run->append(failed_event(record->head(), record->fail(*sink.error()), number));
  }
  if (record->is_stored()) co_return;
  const ResponseEnd* end = record->ended();
  const bool has_failed = end != nullptr && end->status == "failed";
  if (!there && !has_failed) end = &record->cancel();
  if (end == nullptr) co_return;
  StoredTurn last = turn->ended(*end, {});
  std::string owner = tenant;
  co_await ends_->store(std::move(owner), std::move(last));
}

asio::awaitable<void> BackgroundResponses::give_up(BackgroundRun& run, std::string tenant,
                                                   std::shared_ptr<const ResponseTurn> turn) {
  ResponseRecord& record = *turn->record;
  const ResponseEnd& end = record.fail(
      api_error(internal_error("the server failed while it made the response; send the request again")));
  run.append(failed_event(record.head(), end, run.next_event()));
  StoredTurn last = turn->ended(end, {});
  co_await ends_->store(std::move(tenant), std::move(last));
}

void BackgroundResponses::retire(const Key& key) {
  ended_.push_back({.key = key, .event_bytes = runs_.at(key)->event_bytes()});
  ended_bytes_ += ended_.back().event_bytes;
  while (ended_bytes_ > kEndedBytesMax) {
    const Ended oldest = std::move(ended_.front());
    ended_.pop_front();
    ended_bytes_ -= oldest.event_bytes;
    runs_.erase(oldest.key);
  }
}

void BackgroundResponses::forget(const std::string& tenant, const std::string& id) {
  const auto at = runs_.find(Key(tenant, id));
  if (at == runs_.end() || !at->second->ended()) return;
  const auto ended =
      std::find_if(ended_.begin(), ended_.end(), [&](const Ended& one) { return one.key == at->first; });
  if (ended != ended_.end()) {
    ended_bytes_ -= ended->event_bytes;
    ended_.erase(ended);
  }
  runs_.erase(at);
}

asio::awaitable<void> BackgroundResponses::cancel(std::shared_ptr<BackgroundRun> run) {
  run->cancel();
  while (!run->ended()) co_await run->wait();
}

namespace {

// Until something has changed, or that time at the latest.
asio::awaitable<void> wait_until(std::shared_ptr<BackgroundRun> run, asio::io_context& io,
                                 std::chrono::steady_clock::time_point time) {
  asio::steady_timer over(io, time);
  over.async_wait([run](const boost::system::error_code& error) {
    if (!error) run->wake();
  });
  co_await run->wait();
}

}  // namespace

asio::awaitable<void> BackgroundResponses::follow(Call& call, std::shared_ptr<BackgroundRun> run,
                                                  std::uint64_t first, Nanos quiet_limit) {
  if (run->has_dropped(first)) {
    ApiError gone = api_error(invalid_argument(
        "the event after this one is no longer kept; GET without stream returns the whole response when it "
        "has ended",
        "starting_after"));
    co_await call.fail(std::move(gone));
    co_return;
  }
  if (run->followers() >= BackgroundRun::kFollowersMax) {
    ApiError many = api_error(resource_exhausted(
        fmt::format("the limit is {} clients that follow one response; GET without stream shows its state",
                    BackgroundRun::kFollowersMax)));
    many.code = "too_many_followers";
    co_await call.fail(std::move(many));
    co_return;
  }
  const BackgroundRun::Follower follower(*run);
  Exchange& exchange = call.exchange;
  exchange.watch([run] { run->wake(); });
  bool there = co_await exchange.begin_stream("text/event-stream; charset=utf-8");
  // Nothing of the stream is told, so there is nothing to wait for.
  if (exchange.request().method == boost::beast::http::verb::head) co_return;
  using std::chrono::steady_clock;
  const auto quiet_from_now = [quiet_limit] {
    return steady_clock::now() + std::chrono::nanoseconds(quiet_limit);
  };
  steady_clock::time_point quiet_at = quiet_from_now();
  BackgroundRun::Position next{.event = first};
  while (there) {
    if (run->has_dropped(next.event)) {
      exchange.cut_stream();
      co_return;
    }
    const std::string events = run->read(next, kFollowedAtOnce);
    if (!events.empty()) {
      there = co_await exchange.stream(events);
      quiet_at = quiet_from_now();
      continue;
    }
    if (run->ended()) break;
    if (steady_clock::now() >= quiet_at) {
      there = co_await exchange.stream(kSseComment);
      quiet_at = quiet_from_now();
      continue;
    }
    co_await wait_until(run, exchange.io(), quiet_at);
    there = !exchange.gone();
  }
  if (there) co_await exchange.end_stream();
}

}  // namespace loci
