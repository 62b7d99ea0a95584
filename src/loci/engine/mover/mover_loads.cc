// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/mover/mover_loads.h"

#include <algorithm>
#include <utility>

namespace loci {

MoverLoads::MoverLoads(const MoverLink& link) : link_(link) {
  const BackendInfo& info = link.backend.info();
  places_.resize(info.layers);
  std::uint64_t slice_bytes = 0;
  for (std::uint32_t group = 0; group < info.groups.size(); ++group) {
    const LayerGroup& shape = info.groups[group];
    const auto layers = static_cast<std::uint32_t>(shape.layers.size());
    const auto run = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(1, info.copy_bytes / std::max<std::uint64_t>(1, shape.layer_slice_bytes)));
    for (std::uint32_t i = 0; i < layers; ++i) {
      places_.at(shape.layers[i]) = {group, i, i % run == 0 ? std::min(run, layers - i) : 0};
    }
    slice_bytes = std::max(slice_bytes, shape.layer_slice_bytes);
  }
  scratch_.resize(slice_bytes);
}

void MoverLoads::add(std::vector<Move> moves, Nanos taken) {
  if (moves.empty()) return;
  auto batch = std::make_shared<Batch>();
  Nanos limit = link_.options.load_limit;
  for (Move& move : moves) {
    limit = std::max(limit, move.time_limit);
    batch->loads.push_back({.move = std::move(move)});
  }
  batch->deadline = taken + limit;
  batches_.push_back(std::move(batch));
}

bool MoverLoads::step() {
  if (batches_.empty()) return false;
  Batch& batch = *batches_.front();
  const Nanos now = link_.desk.now();
  if (batch.begun == kNever) batch.begun = now;
  if (now > batch.deadline) {
    for (Load& load : batch.loads) {
      if (!load.over) fail(load, Status(StatusCode::kDeadlineExceeded, "the load took too long"), batch);
    }
  }
  bring(batch, places_[batch.layer]);
  do {
    ++batch.layer;
  } while (batch.layer < places_.size() && places_[batch.layer].run == 0);
  if (batch.layer < places_.size()) return true;
  end(std::move(batches_.front()));
  batches_.pop_front();
  return true;
}

void MoverLoads::bring(Batch& batch, const Place& place) {
  pieces_.clear();
  for (Load& load : batch.loads) {
    if (load.over) continue;
    Status status;
    for (const MovePart& part : load.move.parts) {
      if (status.ok() && part.group == place.group) status = prepare(load.move, part, place);
    }
    if (!status.ok()) fail(load, status, batch);
  }
  if (pieces_.empty()) return;
  const LayerRange layers{place.index, place.index + place.run};
  link_.backend.load(place.group, layers, pieces_, BytesHeld::kUntilCopied);
}

// What can be copied as it lies is a piece of the step; the rest is brought at once.
Status MoverLoads::prepare(const Move& move, const MovePart& part, const Place& place) {
  const LayerGroup& group = link_.group(part.group);
  const std::uint32_t end = place.index + place.run;
  for (std::uint32_t i = place.index; i < end; ++i) {
    LOCI_RETURN_IF_ERROR(link_.before_slice(move, group.layers[i]));
  }
  if (move.from == Tier::kHost && move.rotate_by == 0) {
    pieces_.push_back({part.to, link_.host.slices(part.group, part.from, {place.index, end})});
    return {};
  }
  for (std::uint32_t i = place.index; i < end; ++i) {
    if (move.from == Tier::kHost) {
      link_.arrive(move, part, i, link_.host.slice(part.group, part.from, i));
      continue;
    }
    const SavePiece piece{part.from, std::span(scratch_).first(group.layer_slice_bytes)};
    link_.backend.save(part.group, {i, i + 1}, {&piece, 1}, BytesHeld::kDuringCall);
    link_.arrive(move, part, i, piece.bytes);
  }
  return {};
}

// Its slots, and its source, are others' when its end is told: not before what was begun is over.
void MoverLoads::fail(Load& load, const Status& status, const Batch& batch) {
  load.over = true;
  fail_targets(load.move);
  after_copies([this, move = load.move, result = result_of(status), begun = batch.begun](const Status&) {
    link_.desk.end(move, result, begun);
  });
}

// A batch has the link from when the one before it ended.
void MoverLoads::end(std::shared_ptr<Batch> batch) {
  after_copies([this, batch = std::move(batch)](const Status& status) {
    const Nanos begun = std::max(batch->begun, std::exchange(link_free_at_, link_.desk.now()));
    for (const Load& load : batch->loads) {
      if (load.over) continue;
      if (!status.ok()) fail_targets(load.move);
      link_.desk.end(load.move, result_of(status), begun);
    }
  });
}

void MoverLoads::after_copies(Copied done) {
  copying_.fetch_add(1, std::memory_order_relaxed);
  link_.backend.after_loads([this, done = std::move(done)](const Status& status) {
    copying_.fetch_sub(1, std::memory_order_release);
    done(status);
    link_.desk.wake();  // what waited for copying() may go on
  });
}

void MoverLoads::fail_targets(const Move& move) const {
  for (const MovePart& part : move.parts) link_.backend.fill_failed(part.group, part.to);
}

void MoverLoads::abandon() {
  for (const std::shared_ptr<Batch>& batch : batches_) {
    for (const Load& load : batch->loads) {
      if (!load.over) fail_targets(load.move);
    }
  }
  batches_.clear();
}

}  // namespace loci
