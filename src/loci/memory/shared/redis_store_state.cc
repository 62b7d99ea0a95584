// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_store_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/memory/shared/redis_cluster.h"

namespace loci {
namespace {

std::string whole_seconds(Nanos time) {
  return time == 0 ? "" : fmt::format("{}", (time + kNanosPerSecond - 1) / kNanosPerSecond);
}

}  // namespace

RedisStoreState::RedisStoreState(RedisStoreOptions options, const Clock& clock,
                                 std::function<void()> wants_tending)
    : options_(std::move(options)),
      clock_(clock),
      format_(options_.keys, options_.groups),
      time_to_live_(whole_seconds(options_.time_to_live)),
      topology_(options_.address, clock, std::move(wants_tending)) {}

void RedisStoreState::begin_down(const Status& why) {
  health_.begin_down(clock_.now());
  options_.warn(fmt::format("the shared store {} cannot be reached, and is tried again later: {}",
                            options_.address.shown(), why.message()));
}

void RedisStoreState::note_health(const Status& status) {
  if (status.code() == StatusCode::kCancelled) return;
  if (status.ok()) {
    if (health_.succeeded())
      options_.warn(fmt::format("the shared store {} is asked again", options_.address.shown()));
    return;
  }
  count(&SharedStoreStats::failures_total, 1);
  if (!health_.failed(clock_.now())) return;
  options_.warn(
      fmt::format("the shared store {} is not asked until it answers again, and the state that it has is "
                  "computed here: {}",
                  options_.address.shown(), status.message()));
}

Status RedisStoreState::not_asked() {
  return {StatusCode::kUnavailable, "the shared store did not answer before, and is not asked now"};
}

Status RedisStoreState::behind() {
  return {StatusCode::kDeadlineExceeded, "the shared store takes less than it is given"};
}

Nanos RedisStoreState::limit_of(std::uint64_t bytes) const {
  const auto takes =
      static_cast<unsigned __int128>(bytes) * kNanosPerSecond / std::max<std::uint64_t>(1, options_.rate_min);
  return clock_.now() + options_.transfer_limit + static_cast<Nanos>(takes);
}

void RedisStoreState::count(std::uint64_t SharedStoreStats::* what, std::uint64_t by) {
  const MutexLock lock(stats_mutex_);
  stats_.*what += by;
}

SharedStoreStats RedisStoreState::stats() const {
  const bool is_up = health_.up();
  const MutexLock lock(stats_mutex_);
  SharedStoreStats stats = stats_;
  stats.up = is_up;
  return stats;
}

void RedisStoreState::begin_stop() {
  stopping_ = true;
  stop_.stop();
  topology_.stop();
}

Result<RedisConnection*> RedisLine::get(Nanos deadline) {
  if (connection_ != nullptr && connection_->is_open()) return connection_.get();
  connection_.reset();
  LOCI_ASSIGN_OR_RETURN(connection_, open_redis(store_.topology(), RedisDialing::kAsNeeded, store_.clock(),
                                                store_.stop(), deadline));
  return connection_.get();
}

}  // namespace loci
