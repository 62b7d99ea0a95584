// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/limits/cluster_limits.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "loci/base/check.h"

namespace loci {
namespace {

constexpr std::chrono::nanoseconds kLimitsRenewal{kMemberRenewal};
constexpr int kRenewalsToClear = 60;
constexpr std::size_t kLimitsAsksMax = 1'024;  // in one round

}  // namespace

ClusterLimits::ClusterLimits(std::unique_ptr<LimitTable> table, std::shared_ptr<spdlog::logger> log)
    : table_(std::move(table)),
      log_(std::move(log)),
      busy_since_(Time::time_point::max()),
      thread_([this] { run(); }) {}

ClusterLimits::~ClusterLimits() { stop(); }

void ClusterLimits::stop() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  {
    MutexLock lock(mutex_);
    const auto most = std::chrono::nanoseconds(kMemberStopWait);
    if (!changed_.wait_for(lock, most, [this]() REQUIRES(mutex_) { return is_over_; })) table_->abandon();
  }
  if (thread_.joinable()) thread_.join();
}

void ClusterLimits::ask(LimitAsk ask, Done done) {
  {
    const MutexLock lock(mutex_);
    const bool is_late = busy_since_ != Time::time_point::max() &&
                         Time::now() - busy_since_ > std::chrono::nanoseconds(kLimitPatience);
    if (is_up_ && !is_stopping_ && !is_late) {
      waiting_.push_back({std::move(ask), std::move(done)});
      changed_.notify_all();
      return;
    }
  }
  done(std::nullopt);
}

void ClusterLimits::end(const std::string& tenant) {
  const MutexLock lock(mutex_);
  Known& known = known_[tenant];
  LOCI_CHECK(known.running > 0, "only what was counted ends");
  --known.running;
  changes_.insert(tenant);
  changed_.notify_all();
}

void ClusterLimits::settle(const std::string& tenant, std::uint64_t taken, std::uint64_t used) {
  const MutexLock lock(mutex_);
  Known& known = known_[tenant];
  known.taken += taken;
  known.used += used;
  changes_.insert(tenant);
  changed_.notify_all();
}

std::uint32_t ClusterLimits::servers() const {
  const MutexLock lock(mutex_);
  return servers_;
}

ClusterLimits::Round ClusterLimits::begin_round() {
  Round round;
  std::map<std::string, std::size_t> places;
  const auto place_of = [&](const std::string& tenant) -> std::size_t {
    const auto [at, is_new] = places.try_emplace(tenant, round.tenants.size());
    if (is_new) {
      round.tenants.push_back({.tenant = tenant});
      round.done.emplace_back();
    }
    return at->second;
  };
  std::size_t taken = 0;
  for (; taken < std::min(waiting_.size(), kLimitsAsksMax); ++taken) {
    Waiting& one = waiting_[taken];
    if (places.size() == LimitTable::kCountedMax && !places.contains(one.ask.tenant)) break;
    const std::size_t place = place_of(one.ask.tenant);
    known_[one.ask.tenant].limits = one.ask.limits;
    round.tenants[place].asks.push_back(std::move(one.ask));
    round.done[place].push_back(std::move(one.done));
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(taken));
  while (!changes_.empty() && places.size() < LimitTable::kCountedMax) {
    place_of(*changes_.begin());
    changes_.erase(changes_.begin());
  }
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

Status ClusterLimits::count(Round round) {
  const Status counted = table_->count(round.tenants);
  {
    const MutexLock lock(mutex_);
    for (CountedTenant& tenant : round.tenants) {
      Known& known = known_[tenant.tenant];
      if (!counted.ok()) {
        // It may have been written all the same. Requests that run are written again as a number; what was
        // given back may be given back twice, and a bucket holds a minute's worth at most.
        known.taken += tenant.tokens_taken;
        known.used += tenant.tokens_used;
        changes_.insert(tenant.tenant);
        tenant.answers.clear();
        continue;
      }
      for (std::size_t i = 0; i < tenant.asks.size(); ++i) {
        if (!tenant.asks[i].tokens && !tenant.answers[i].reached) ++known.running;
      }
    }
  }
  for (std::size_t i = 0; i < round.tenants.size(); ++i) {
    const std::vector<LimitAnswer>& answers = round.tenants[i].answers;
    for (std::size_t k = 0; k < round.done[i].size(); ++k)
      round.done[i][k](answers.empty() ? std::nullopt : std::optional(answers[k]));
  }
  return counted;
}

void ClusterLimits::tell_all() {
  for (const auto& [tenant, known] : known_) {
    if (known.running > 0) changes_.insert(tenant);
  }
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
  const MutexLock lock(mutex_);
  servers_ = members;
  return {};
}

void ClusterLimits::log_change(const Status& now) {
  if (now.ok())
    log_->info("tenants' limits hold over all servers again");
  else
    log_->warn("the cluster's database does not answer: this server allows its share of tenants' limits ({})",
               now.message());
}

void ClusterLimits::run() {
  pthread_setname_np(pthread_self(), "loci-limits");
  Time::time_point renewal = Time::now();
  int renewals = 0;
  MutexLock lock(mutex_);
  while (!is_stopping_) {
    const bool is_due = Time::now() >= renewal;
    // While the database is away nothing but the renewal asks for it.
    Round round = is_up_ ? begin_round() : Round();
    busy_since_ = Time::now();
    lock.unlock();
    Status status = round.tenants.empty() ? Status() : count(std::move(round));
    if (status.ok() && is_due) {
      status = renew();
      if (status.ok() && renewals++ % kRenewalsToClear == 0) status = table_->clear();
      renewal = Time::now() + kLimitsRenewal;
    }
    lock.lock();
    busy_since_ = Time::time_point::max();
    const bool was_up = std::exchange(is_up_, status.ok());
    if (!status.ok()) renewal = Time::now() + kLimitsRenewal;
    if (!was_up && is_up_) tell_all();
    lock.unlock();
    if (was_up != status.ok()) log_change(status);
    if (!status.ok()) refuse_waiting();
    lock.lock();
    changed_.wait_until(lock, renewal, [this]() REQUIRES(mutex_) {
      return is_stopping_ || (is_up_ && (!waiting_.empty() || !changes_.empty()));
    });
  }
  lock.unlock();
  refuse_waiting();
  (void)table_->leave().ok();
  lock.lock();
  is_over_ = true;
  changed_.notify_all();
}

}  // namespace loci
