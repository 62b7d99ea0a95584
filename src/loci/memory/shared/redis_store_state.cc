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
      topology_(options_.address, clock, std::move(wants_tending)),
      account_(options_.address.shown(),
               options_.time_to_live == 0 ? "until the store evicts it" : "for its time to live",
               options_.warn, clock) {}

Nanos RedisStoreState::limit_of(std::uint64_t bytes) const {
  return clock_.now() + shared_transfer_limit(options_.transfer_limit, bytes, options_.rate_min);
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
