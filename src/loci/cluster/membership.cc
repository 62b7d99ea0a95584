// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/membership.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

namespace loci {
namespace {

std::int64_t monotonic_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// What takes so long that others may have been thought dead is a gap too.
void RowTrust::note_try(std::int64_t at_ms, std::optional<std::int64_t> database_ms, std::int64_t took_ms) {
  constexpr std::int64_t kStepMs = 1'000;
  const bool has_gap = at_ms - tried_at_ > 3 * kMemberRenewal / kNanosPerMilli;
  tried_at_ = at_ms;
  if (!database_ms) {
    since_ = 0;
    return;
  }
  const std::int64_t ahead = *database_ms - at_ms;
  // The database may have read its clock at any moment of a try.
  const bool has_stepped = std::abs(ahead - ahead_) > kStepMs + std::max(took_ms, took_);
  ahead_ = ahead;
  took_ = took_ms;
  if (has_gap || has_stepped || since_ == 0) since_ = at_ms;
}

bool RowTrust::is_given(std::int64_t at_ms) const {
  constexpr std::int64_t kGivenAfterMs = (kMemberLifetime + 2 * kMemberRenewal) / kNanosPerMilli;
  const std::int64_t since = since_.load();
  return since != 0 && at_ms - since >= kGivenAfterMs;
}

Membership::Membership(std::unique_ptr<MemberTable> table, Member member, std::function<MemberLoad()> load,
                       std::shared_ptr<spdlog::logger> log, MemberRenewal joined)
    : table_(std::move(table)),
      member_(std::move(member)),
      load_(std::move(load)),
      log_(std::move(log)),
      last_(joined),
      last_at_(monotonic_ms()),
      thread_([this] { run(); }) {}

Result<std::unique_ptr<Membership>> Membership::join(std::unique_ptr<MemberTable> table, Member member,
                                                     std::function<MemberLoad()> load,
                                                     std::shared_ptr<spdlog::logger> log) {
  LOCI_ASSIGN_OR_RETURN(const MemberRenewal joined, table->join(member));
  return std::unique_ptr<Membership>(
      new Membership(std::move(table), std::move(member), std::move(load), std::move(log), joined));
}

Membership::~Membership() {
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
  thread_.join();
}

std::vector<std::string> Membership::ended_stores() {
  if (!trust_.is_given(monotonic_ms())) return {};
  Result<std::vector<std::string>> ended = table_->ended_stores();
  return ended.ok() ? std::move(ended).value() : std::vector<std::string>();
}

void Membership::drain() {
  MutexLock lock(mutex_);
  is_draining_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, std::chrono::seconds(2), [this]() REQUIRES(mutex_) { return is_told_; });
}

Status Membership::renew() {
  const MemberLoad load = load_();
  if (load.stalls) return Status(StatusCode::kDeadlineExceeded, "the device stands still");
  member_.running = load.running;
  member_.queued = load.queued;
  member_.slots = load.slots;
  const bool was_asked = last_.is_asked_to_drain;
  {
    const MutexLock lock(mutex_);
    member_.draining = is_draining_ || was_asked;
  }
  const std::int64_t begin = monotonic_ms();
  const Result<MemberRenewal> renewed = table_->renew(member_, last_.now_ms + begin - last_at_);
  LOCI_RETURN_IF_ERROR(renewed.status());
  last_ = *renewed;
  last_at_ = monotonic_ms();
  if (last_.is_asked_to_drain != was_asked) {
    log_->info(last_.is_asked_to_drain ? "this server was asked to drain: fronts send it no new requests"
                                       : "this server is no longer asked to drain");
    // Said at once.
    member_.draining = member_.draining || last_.is_asked_to_drain;
    const Result<MemberRenewal> told = table_->renew(member_, last_.now_ms + monotonic_ms() - last_at_);
    LOCI_RETURN_IF_ERROR(told.status());
  }
  if (member_.draining) {
    const MutexLock lock(mutex_);
    is_told_ = is_draining_;
    if (is_told_) changed_.notify_all();
  }
  return {};
}

void Membership::log_change(const Status& before, const Status& now) {
  const bool was_out = before.code() == StatusCode::kInvalidArgument;
  const bool is_out = now.code() == StatusCode::kInvalidArgument;
  const bool stalls = now.code() == StatusCode::kDeadlineExceeded;
  const bool did_stall = before.code() == StatusCode::kDeadlineExceeded;
  if (is_out && !(was_out && before.message() == now.message())) {
    log_->error(
        "this server has left the cluster because it differs from another member, and comes back when they "
        "agree: {}",
        now.message());
  } else if (now.ok() && !before.ok()) {
    log_->info(was_out || did_stall ? "this server is in the cluster again"
                                    : "the cluster's database answers again");
  } else if (stalls && !did_stall) {
    log_->error("this server leaves the cluster until its device goes on");
  } else if (!now.ok() && before.code() != now.code()) {
    log_->warn("the cluster's database does not answer: this server goes on, and tries again ({})",
               now.message());
  }
}

void Membership::run() {
  pthread_setname_np(pthread_self(), "loci-member");
  Status before;
  MutexLock lock(mutex_);
  while (!is_stopping_) {
    const bool was_draining = is_draining_;
    lock.unlock();
    const std::int64_t begin = monotonic_ms();
    Status now = renew();
    const std::int64_t at = monotonic_ms();
    trust_.note_try(at, now.ok() ? std::optional(last_.now_ms + at - last_at_) : std::nullopt, at - begin);
    // An old row would say that this server has ended.
    if (now.code() == StatusCode::kInvalidArgument && before.code() != now.code())
      (void)table_->leave(member_.id).ok();
    log_change(before, now);
    before = std::move(now);
    lock.lock();
    changed_.wait_for(lock, std::chrono::nanoseconds(kMemberRenewal),
                      [&]() REQUIRES(mutex_) { return is_stopping_ || is_draining_ != was_draining; });
  }
  lock.unlock();
  const Status left = table_->leave(member_.id);
  if (!left.ok())
    log_->warn(
        "this member's row could not be removed from the cluster's database, and counts until it is too old: "
        "{}",
        left.message());
  lock.lock();
  is_over_ = true;
  changed_.notify_all();
}

}  // namespace loci
