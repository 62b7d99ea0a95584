// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/limits/cluster_limits.h"

#include <pthread.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "loci/base/check.h"

namespace loci {
namespace {

constexpr std::chrono::nanoseconds kLimitsRenewal{kMemberRenewal};
constexpr int kRenewalsToClear = 60;
// Once renewals have succeeded for so long, every member that lives has had the time to renew its row.
constexpr std::chrono::nanoseconds kAllHaveRenewed{kMemberLifetime + 2 * kMemberRenewal};
constexpr std::size_t kLimitsAsksMax = 1'024;  // in one round

// How long a refusal serves for later requests.
std::chrono::nanoseconds kept_for(const LimitReached& reached) {
  const bool is_place = reached.kind == LimitReached::Kind::kConcurrent;
  return std::chrono::nanoseconds(std::min(is_place ? kPlaceRefusalKept : kRefusalKept, reached.retry_after));
}

}  // namespace

ClusterLimits::ClusterLimits(std::unique_ptr<LimitTable> table, std::shared_ptr<spdlog::logger> log,
                             std::uint64_t seed)
    : table_(std::move(table)),
      log_(std::move(log)),
      busy_since_(Time::time_point::max()),
      pauses_(seed),
      thread_([this] { run(); }) {}

ClusterLimits::~ClusterLimits() { stop(); }

void ClusterLimits::stop() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  bool is_over = false;
  {
    MutexLock lock(mutex_);
    const auto most = std::chrono::nanoseconds(kMemberStopWait);
    is_over = changed_.wait_for(lock, most, [this]() REQUIRES(mutex_) { return is_over_; });
  }
  if (!is_over) table_->abandon();
  if (thread_.joinable()) thread_.join();
}

void ClusterLimits::ask(LimitAsk ask, Done done) {
  std::optional<LimitAnswer> answer;
  {
    const MutexLock lock(mutex_);
    const Time::time_point now = Time::now();
    const bool is_late = busy_since_ != Time::time_point::max() &&
                         now - busy_since_ > std::chrono::nanoseconds(kLimitPatience);
    if (is_up_ && !is_stopping_ && !is_late) {
      const Known& known = known_[ask.tenant];
      const bool is_refused = !ask.tokens && ask.attempt == LimitAsk::Attempt::kFirst && known.refusal &&
                              now < known.refused_until && ask.limits == known.limits;
      if (!is_refused) {
        wake_by(due_at(known, &ask));
        waiting_.push_back({std::move(ask), std::move(done), now});
        return;
      }
      answer = known.refusal;
    }
  }
  done(answer);
}

void ClusterLimits::end(const std::string& tenant) {
  const MutexLock lock(mutex_);
  Known& known = known_[tenant];
  LOCI_CHECK(known.running > 0, "only what was counted ends");
  --known.running;
  change(tenant, known);
}

void ClusterLimits::settle(const std::string& tenant, std::uint64_t taken, std::uint64_t used) {
  const MutexLock lock(mutex_);
  Known& known = known_[tenant];
  known.taken += taken;
  known.used += used;
  change(tenant, known);
}

void ClusterLimits::change(const std::string& tenant, Known& known) {
  known.refusal.reset();
  known.refused_until = {};
  changes_.insert(tenant);
  wake_by(known.locked_until);
}

void ClusterLimits::wake_by(Time::time_point due) {
  if (due >= due_) return;
  due_ = due;
  changed_.notify_all();
}

// `ask`: null: what has ended.
ClusterLimits::Time::time_point ClusterLimits::due_at(const Known& known, const LimitAsk* ask) {
  const bool begins = ask != nullptr && !ask->tokens && ask->attempt != LimitAsk::Attempt::kMoved;
  return begins ? std::max(known.locked_until, known.refused_until) : known.locked_until;
}

std::uint32_t ClusterLimits::servers() const {
  const MutexLock lock(mutex_);
  return servers_;
}

void ClusterLimits::take_due(Round& round, Time::time_point now) {
  std::map<std::string, std::size_t> places;
  // False: it is not this round's.
  const auto may_take = [&](const std::string& tenant, const LimitAsk* ask) REQUIRES(mutex_) {
    const Time::time_point due = due_at(known_[tenant], ask);
    const bool has_place = places.size() < LimitTable::kCountedMax || places.contains(tenant);
    if (due <= now && has_place) {
      if (places.try_emplace(tenant, round.tenants.size()).second) {
        round.tenants.push_back({.tenant = tenant});
        round.waiting.emplace_back();
      }
      return true;
    }
    due_ = std::min(due_, due);
    return false;
  };
  std::vector<Waiting> left;
  std::size_t taken = 0;
  for (Waiting& one : waiting_) {
    if (taken == kLimitsAsksMax || !may_take(one.ask.tenant, &one.ask)) {
      if (taken == kLimitsAsksMax) due_ = now;
      left.push_back(std::move(one));
      continue;
    }
    ++taken;
    const std::size_t place = places[one.ask.tenant];
    known_[one.ask.tenant].limits = one.ask.limits;
    round.tenants[place].asks.push_back(one.ask);
    round.waiting[place].push_back(std::move(one));
  }
  waiting_ = std::move(left);
  for (auto at = changes_.begin(); at != changes_.end();)
    at = may_take(*at, nullptr) ? changes_.erase(at) : std::next(at);
}

ClusterLimits::Round ClusterLimits::begin_round() {
  Round round;
  due_ = Time::time_point::max();
  take_due(round, Time::now());
  for (CountedTenant& tenant : round.tenants) {
    changes_.erase(tenant.tenant);
    Known& known = known_[tenant.tenant];
    tenant.limits = known.limits;
    tenant.running = known.running;
    tenant.tokens_taken = std::exchange(known.taken, 0);
    tenant.tokens_used = std::exchange(known.used, 0);
  }
  return round;
}

std::vector<ClusterLimits::Answered> ClusterLimits::note_counted(CountedTenant& tenant,
                                                                 std::vector<Waiting>& waiting) {
  Known& known = known_[tenant.tenant];
  known.pause.reset();
  std::vector<Answered> told;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const LimitAnswer& answer = tenant.answers[i];
    told.push_back({std::move(waiting[i].done), answer});
    if (tenant.asks[i].tokens) continue;
    known.refusal.reset();
    known.refused_until = {};
    if (answer.reached) {
      if (changes_.contains(tenant.tenant)) continue;  // it may begin since then
      known.refusal = answer;
      known.refused_until = Time::now() + kept_for(*answer.reached);
    } else {
      ++known.running;
    }
  }
  return told;
}

std::vector<ClusterLimits::Answered> ClusterLimits::put_back(CountedTenant& tenant,
                                                             std::vector<Waiting>& waiting,
                                                             const Status& counted) {
  Known& known = known_[tenant.tenant];
  // After an error it may have been written all the same. Requests that run are written again as a number;
  // what was given back may be given back twice, and a bucket holds a minute's worth at most.
  known.taken += tenant.tokens_taken;
  known.used += tenant.tokens_used;
  changes_.insert(tenant.tenant);
  const Time::time_point now = Time::now();
  const std::chrono::nanoseconds patience(kLimitPatience);
  if (counted.ok()) {
    const auto waited = waiting.empty() ? std::chrono::nanoseconds(0) : now - waiting.front().since;
    known.locked_until = now + known.pause.next(patience - waited, pauses_);
  }
  due_ = std::min(due_, known.locked_until);
  std::vector<Answered> told;
  for (Waiting& one : waiting) {
    if (counted.ok() && now - one.since < patience)
      waiting_.push_back(std::move(one));
    else
      told.push_back({std::move(one.done), std::nullopt});
  }
  return told;
}

Status ClusterLimits::count(Round round) {
  const Status counted = table_->count(round.tenants);
  std::vector<Answered> told;
  {
    const MutexLock lock(mutex_);
    for (std::size_t i = 0; i < round.tenants.size(); ++i) {
      CountedTenant& tenant = round.tenants[i];
      std::vector<Answered> some = tenant.is_counted ? note_counted(tenant, round.waiting[i])
                                                     : put_back(tenant, round.waiting[i], counted);
      std::move(some.begin(), some.end(), std::back_inserter(told));
    }
    // (Others may have come while these were asked for.)
    std::ranges::stable_sort(waiting_, {}, &Waiting::since);
  }
  for (const Answered& one : told) one.done(one.answer);
  return counted;
}

void ClusterLimits::tell_all() {
  for (const auto& [tenant, known] : known_) {
    if (known.running > 0) changes_.insert(tenant);
  }
  due_ = Time::now();
}

void ClusterLimits::refuse_waiting() {
  std::vector<Waiting> waiting;
  {
    const MutexLock lock(mutex_);
    waiting.swap(waiting_);
  }
  for (const Waiting& one : waiting) one.done(std::nullopt);
}

Status ClusterLimits::renew() {
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t members, table_->renew());
  const Time::time_point now = Time::now();
  if (!renewed_since_) renewed_since_ = now;
  {
    // Just after an outage the rows of most members are too old. Shares of so few servers would be too large
    // if the database goes away again.
    const MutexLock lock(mutex_);
    servers_ = now - *renewed_since_ >= kAllHaveRenewed ? members : std::max(servers_, members);
  }
  // (Where it failed it is the next renewal's: the database is not back before.)
  if (renewals_ % kRenewalsToClear == 0) LOCI_RETURN_IF_ERROR(table_->clear());
  ++renewals_;
  return {};
}

void ClusterLimits::log_change(const Status& now) {
  if (now.ok())
    log_->info("tenants' limits hold over all servers again");
  else
    log_->warn("the cluster's database does not answer: this server allows its share of tenants' limits ({})",
               now.message());
}

Status ClusterLimits::count_due() {
  MutexLock lock(mutex_);
  Round round = begin_round();
  lock.unlock();
  return round.tenants.empty() ? Status() : count(std::move(round));
}

void ClusterLimits::run() {
  pthread_setname_np(pthread_self(), "loci-limits");
  Time::time_point renewal = Time::now();
  MutexLock lock(mutex_);
  while (!is_stopping_) {
    const bool is_due = Time::now() >= renewal, was_up = is_up_;
    busy_since_ = Time::now();
    lock.unlock();
    // While the database is away only the renewal asks for it. It is back when what failed is counted: one
    // that takes renewals and counts nothing would else have requests wait for it again and again.
    Status status = was_up ? count_due() : Status();
    if (status.ok() && is_due) status = renew();
    if (status.ok() && is_due && !was_up) status = count_due();
    if (!status.ok()) renewed_since_.reset();
    if (is_due || !status.ok()) renewal = Time::now() + kLimitsRenewal;
    lock.lock();
    busy_since_ = Time::time_point::max();
    is_up_ = status.ok() && (was_up || is_due);
    const bool has_changed = was_up != is_up_, is_up = is_up_;
    if (has_changed && is_up) tell_all();
    lock.unlock();
    if (has_changed) log_change(status);
    if (!is_up) refuse_waiting();
    lock.lock();
    while (!is_stopping_) {
      const Time::time_point wanted = is_up_ ? std::min(renewal, due_) : renewal;
      if (Time::now() >= wanted) break;
      changed_.wait_until(lock, wanted);
    }
  }
  lock.unlock();
  refuse_waiting();
  (void)table_->leave().ok();
  lock.lock();
  is_over_ = true;
  changed_.notify_all();
}

}  // namespace loci
