// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/mover/mover_desk.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace loci {
namespace {

MoverStats::Link& link_of(MoverStats& stats, const Move& move) {
  if (move.peer) return stats.peer_serve;
  if (move.from == Tier::kShared) return stats.shared_load;
  if (move.to == Tier::kShared) return stats.shared_save;
  if (move.to == Tier::kDevice) return move.from == Tier::kDisk ? stats.disk_load : stats.host_load;
  if (move.to == Tier::kHost) return move.from == Tier::kDisk ? stats.prefetch : stats.host_save;
  return stats.disk_save;
}

}  // namespace

std::uint64_t MoverDesk::bytes_of(const Move& move) const {
  std::uint64_t bytes = 0;
  for (const MovePart& part : move.parts) {
    const LayerGroup& group = info_.groups[part.group];
    if (move.peer) {
      const LayerRange layers = layers_of(move.peer->rounds, group, info_.layers);
      bytes += (layers.end - layers.begin) * group.layer_slice_bytes;
      continue;
    }
    bytes += move.form == StateForm::kHidden ? group.layers.size() * info_.hidden_row_bytes * kBlockTokens
                                             : group.block_bytes;
  }
  return bytes;
}

void MoverDesk::taken(const std::vector<Move>& moves) {
  const auto serves = std::ranges::count_if(moves, [](const Move& move) { return move.peer.has_value(); });
  const MutexLock lock(mutex_);
  stats_.queued += moves.size();
  stats_.serves_queued += static_cast<std::uint64_t>(serves);
}

void MoverDesk::end(const Move& move, MoveResult result, Nanos begun, bool came) {
  const Nanos took = now() - begun;
  const MutexLock lock(mutex_);
  MoverStats::Link& link = link_of(stats_, move);
  ++link.moves_total;
  if (result == MoveResult::kDone) {
    link.bytes_total += bytes_of(move);
  } else if (result != MoveResult::kNotCaptured) {
    ++link.failures_total;
  }
  link.busy += took;
  --stats_.queued;
  if (move.peer) --stats_.serves_queued;
  ended_.push_back({.move = move.id, .result = result, .took = took, .came = came});
  awake_ = true;
  // Under the mutex: whoever has seen the last end may destroy the mover, and this desk with it.
  woken_.notify_one();
}

std::vector<MoveOutcome> MoverDesk::take_ended() {
  const MutexLock lock(mutex_);
  return std::exchange(ended_, {});
}

void MoverDesk::wait(Nanos until) {
  MutexLock lock(mutex_);
  if (until == kNever) {
    woken_.wait(lock, [&]() REQUIRES(mutex_) { return awake_; });
  } else {
    woken_.wait_for(lock, std::chrono::nanoseconds(until - now()), [&]() REQUIRES(mutex_) { return awake_; });
  }
  awake_ = false;
}

void MoverDesk::wake() {
  const MutexLock lock(mutex_);
  awake_ = true;
  woken_.notify_one();  // under the mutex, as in end()
}

MoverStats MoverDesk::stats() const {
  const MutexLock lock(mutex_);
  return stats_;
}

MoveResult result_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return MoveResult::kDone;
    case StatusCode::kDataLoss: return MoveResult::kDamaged;
    case StatusCode::kNotFound: return MoveResult::kGone;
    case StatusCode::kDeadlineExceeded: return MoveResult::kTooSlow;
    default: return MoveResult::kFailed;
  }
}

}  // namespace loci
