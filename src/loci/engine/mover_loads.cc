#include "loci/engine/mover_loads.h"

#include <algorithm>
#include <utility>

namespace loci {

MoverLoads::MoverLoads(const MoverLink& link) : link_(link) {
  const BackendInfo& info = link.backend.info();
  places_.resize(info.layers);
  std::uint64_t slice_bytes = 0;
  for (std::uint32_t group = 0; group < info.groups.size(); ++group) {
    slice_bytes = std::max(slice_bytes, info.groups[group].layer_slice_bytes);
    for (std::uint32_t i = 0; i < info.groups[group].layers.size(); ++i) {
      places_.at(info.groups[group].layers[i]) = {group, i};
    }
  }
  scratch_.resize(slice_bytes);
}

void MoverLoads::add(std::vector<Move> moves, Nanos taken) {
  if (moves.empty()) return;
  Batch batch{.loads = {}, .taken = taken};
  for (Move& move : moves) batch.loads.push_back({.move = std::move(move)});
  batches_.push_back(std::move(batch));
}

bool MoverLoads::step() {
  if (batches_.empty()) return false;
  Batch& batch = batches_.front();
  const Nanos now = link_.desk.now();
  if (batch.begun == kNever) batch.begun = now;
  const bool late = now - batch.taken > link_.options.load_limit;
  for (Load& load : batch.loads) {
    if (load.over) continue;
    Status status = late ? Status(StatusCode::kDeadlineExceeded, "the load took too long") : Status();
    for (const MovePart& part : load.move.parts) {
      if (status.ok() && part.group == places_[batch.layer].group)
        status = bring(load.move, part, batch.layer);
    }
    if (!status.ok()) fail(load, status, batch);
  }
  if (++batch.layer < places_.size()) return true;
  for (const Load& load : batch.loads) {
    if (!load.over) link_.desk.end(load.move, MoveResult::kDone, batch.begun);
  }
  batches_.pop_front();
  return true;
}

Status MoverLoads::bring(const Move& move, const MovePart& part, std::uint32_t layer) {
  LOCI_RETURN_IF_ERROR(link_.before_slice(move, layer));
  if (move.from == Tier::kHost) {
    link_.arrive(move, part, layer, link_.host.slice(part.group, part.from, places_[layer].index));
    return {};
  }
  const auto slice = std::span(scratch_).first(link_.group(part.group).layer_slice_bytes);
  link_.backend.read_layer(part.from, layer, slice);
  link_.arrive(move, part, layer, slice);
  return {};
}

void MoverLoads::fail(Load& load, const Status& status, const Batch& batch) {
  load.over = true;
  fail_targets(load.move);
  link_.desk.end(load.move, result_of(status), batch.begun);
}

void MoverLoads::fail_targets(const Move& move) const {
  for (const MovePart& part : move.parts) link_.backend.fill_failed(part.group, part.to);
}

void MoverLoads::abandon() {
  for (const Batch& batch : batches_) {
    for (const Load& load : batch.loads) {
      if (!load.over) fail_targets(load.move);
    }
  }
  batches_.clear();
}

}  // namespace loci
