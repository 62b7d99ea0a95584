// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/store_keeper.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <utility>

#include "loci/serve/telemetry/log_line.h"

namespace loci {
namespace {

// Kept alive by the job or timer that is to call it next.
class StoreKeeper : public std::enable_shared_from_this<StoreKeeper> {
 public:
  StoreKeeper(WorkerPool& store_thread, ConversationStore& store, const StoreKeeping& keeping,
              ServeMetrics& metrics, std::shared_ptr<spdlog::logger> log)
      : store_(store),
        keeping_(keeping),
        metrics_(metrics),
        log_(std::move(log)),
        timer_(boost::asio::make_strand(store_thread.executor())) {}

  void post() {
    boost::asio::post(timer_.get_executor(), [self = shared_from_this()] { self->work(); });
  }
  // On any thread. Ends the pause; many that ask before it works are answered together.
  void ask() {
    if (is_asked_.exchange(true)) return;
    boost::asio::post(timer_.get_executor(), [self = shared_from_this()] { self->timer_.cancel(); });
  }

 private:
  void work() {
    is_asked_ = false;
    const Result<StoreExpiry> expiry = expire();
    if (!expiry.ok()) {
      log_->error("expired conversations could not be deleted, which is tried again later: {}",
                  expiry.status().message());
    } else if (expiry->gone > 0 || expiry->has_more) {
      gone_ += expiry->gone;
      if (expiry->gone > 0) metrics_.store_expired(expiry->gone);
      post();  // whoever waits for the store comes first
      return;
    }
    if (gone_ > 0) log_->info("{} conversations and responses have expired", gone_);
    gone_ = 0;
    if (const Result<std::uint64_t> bytes = store_.size_bytes(); bytes.ok()) metrics_.store_size(*bytes);
    timer_.expires_after(std::chrono::nanoseconds(keeping_.period));
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code&) { self->work(); });
  }

  Result<StoreExpiry> expire() {
    ExpiryTime time;  // quotas ask for none
    if (keeping_.limits.age_seconds_max) {
      LOCI_ASSIGN_OR_RETURN(time, store_.expiry_time(*keeping_.limits.age_seconds_max));
    }
    if (time.is_doubted && !was_doubted_)
      log_->warn(
          "the clock by which conversations expire has jumped ahead: those that only it makes too old stay "
          "until it has been steady for a day (docs/conversation-store.md#retention)");
    was_doubted_ = time.is_doubted;
    return store_.expire(time.now_seconds, keeping_.limits);
  }

  ConversationStore& store_;
  StoreKeeping keeping_;
  ServeMetrics& metrics_;
  std::shared_ptr<spdlog::logger> log_;
  boost::asio::steady_timer timer_;  // its executor runs one thing at a time
  std::atomic<bool> is_asked_ = false;
  std::uint64_t gone_ = 0;  // since the last pause
  bool was_doubted_ = false;
};

// The same for what dead servers left.
class InterruptedKeeper : public std::enable_shared_from_this<InterruptedKeeper> {
 public:
  InterruptedKeeper(WorkerPool& store_thread, ConversationStore& store, Nanos period,
                    std::function<std::vector<std::string>()> ended, std::shared_ptr<spdlog::logger> log)
      : store_(store),
        period_(period),
        ended_(std::move(ended)),
        log_(std::move(log)),
        timer_(store_thread.executor()) {}

  void wait() {
    // (Whoever waits for a database that does not answer gets no surer by asking more often.)
    const bool is_soon = servers_.is_in_doubt() && last_.ok();
    timer_.expires_after(std::chrono::nanoseconds(is_soon ? period_ / 4 : period_));
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->work();
    });
  }

 private:
  void work() {
    const Nanos begin = clock_.now();
    const std::vector<std::string> silent = ended_();
    const Result<std::uint64_t> failed =
        store_.fail_interrupted(silent, [&](const std::vector<std::string>& seem) {
          return servers_.look(begin, clock_.now(), seem, silent);
        });
    if (failed.ok() && *failed > 0)
      log_->warn("marked {} responses as failed: the server that made them has ended", *failed);
    if (!failed.ok() && last_.ok())
      log_->warn(
          "it is not known which servers have ended, so the responses that they left open stay in progress: "
          "{}",
          failed.status().message());
    last_ = failed.status();
    wait();
  }

  ConversationStore& store_;
  const Nanos period_;
  const std::function<std::vector<std::string>()> ended_;
  const std::shared_ptr<spdlog::logger> log_;
  boost::asio::steady_timer timer_;
  SystemClock clock_;
  EndedServers servers_;
  Status last_;
};

}  // namespace

std::vector<std::string> EndedServers::look(Nanos begin, Nanos end, const std::vector<std::string>& seem,
                                            const std::vector<std::string>& silent) {
  constexpr Nanos kAnswered = kNanosPerSecond, kMissed = 4 * kNanosPerSecond;
  constexpr Nanos kSure = 5 * kNanosPerSecond, kSureOfSilent = 2 * kNanosPerSecond;
  const bool was_prompt = end - begin <= kAnswered;
  if (!was_prompt || begin - last_ > kMissed) since_.clear();
  last_ = end;
  is_in_doubt_ = false;
  if (!was_prompt) return {};
  std::map<std::string, Nanos> since;
  std::vector<std::string> sure;
  for (const std::string& server : seem) {
    const auto before = since_.find(server);
    const Nanos first = before == since_.end() ? begin : before->second;
    since.emplace(server, first);
    const bool is_silent = std::ranges::find(silent, server) != silent.end();
    if (end - first >= (is_silent ? kSureOfSilent : kSure)) sure.push_back(server);
  }
  since_ = std::move(since);
  is_in_doubt_ = sure.size() < seem.size();
  return sure;
}

void QuotaLog::made_room(std::string_view tenant, std::uint64_t gone) {
  const Nanos now = clock_.now();
  {
    const MutexLock lock(mutex_);
    const auto [entry, is_new] = entries_.try_emplace(std::string(tenant));
    entry->second.gone += gone;
    if (!is_new && now - entry->second.told_at < period_) return;
    gone = std::exchange(entry->second.gone, 0);
    entry->second.told_at = now;
  }
  log(*log_, spdlog::level::warn,
      LogLine("a tenant has reached its quota (stored_bytes, stored_conversations): its conversations and "
              "responses that were unused for longest are deleted to make room for newer ones")
          .text("tenant", tenant)
          .count("deleted", static_cast<std::int64_t>(gone)));
}

void fail_interrupted_responses(WorkerPool& store_thread, ConversationStore& store, Nanos period,
                                std::function<std::vector<std::string>()> ended,
                                std::shared_ptr<spdlog::logger> log) {
  std::make_shared<InterruptedKeeper>(store_thread, store, period, std::move(ended), std::move(log))->wait();
}

std::function<void()> keep_store(WorkerPool& store_thread, ConversationStore& store,
                                 const StoreKeeping& keeping, ServeMetrics& metrics,
                                 std::shared_ptr<spdlog::logger> log) {
  const auto keeper = std::make_shared<StoreKeeper>(store_thread, store, keeping, metrics, std::move(log));
  keeper->post();
  // Only the pool's jobs keep it alive: its timer must not outlive the pool.
  return [weak = std::weak_ptr(keeper)] {
    if (const auto alive = weak.lock()) alive->ask();
  };
}

}  // namespace loci
