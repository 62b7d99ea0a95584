// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/mover/mover_saves.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "loci/memory/partial_block.h"

namespace loci {
namespace {

constexpr std::uint64_t kStepBytes = 256u << 10;  // a load waits for no more

}  // namespace

// A move whose parts the source writes; it ends with the last of them.
struct MoverWrite {
  MoverWrite(const Move& m, Nanos b) : move(m), begun(b), left(m.parts.size()) {}
  const Move move;
  const Nanos begun;
  std::atomic<std::size_t> left;
  std::atomic<bool> failed{false};
};

MoverSaves::MoverSaves(const MoverLink& link, BlockSource* disk, BlockSource* shared)
    : link_(link),
      step_bytes_(link.backend.info().copy_bytes > 0 ? std::numeric_limits<std::uint64_t>::max()
                                                     : kStepBytes),
      to_disk_(disk),
      to_shared_(shared) {}

void MoverSaves::add(std::vector<Move> moves) {
  for (Move& move : moves) {
    Lane& lane = move.to == Tier::kShared ? to_shared_ : to_disk_;
    LOCI_CHECK(move.to == Tier::kHost || lane.source != nullptr, "what is written has a source");
    (move.to == Tier::kHost ? to_host_ : lane.saves).push_back({.move = std::move(move)});
  }
}

bool MoverSaves::step() {
  awaits_rows_ = false;
  return step_host() || step(to_disk_) || step(to_shared_);
}

void MoverSaves::abandon() {
  for (const Save& save : to_disk_.saves) {
    for (const MovePart& part : save.move.parts) {
      to_disk_.source->change({.kind = RecordChange::Kind::kForget,
                               .group = link_.disk_group(save.move, part.group),
                               .slot = part.to,
                               .entry = {}});
    }
  }
  to_host_.clear();
  to_disk_.saves.clear();
  to_shared_.saves.clear();
}

bool MoverSaves::step_host() {
  if (to_host_.empty()) return false;
  Save& save = to_host_.front();
  if (save.begun == kNever) {
    const std::uint64_t bytes = link_.desk.bytes_of(save.move);
    const std::uint64_t copying = copying_.load(std::memory_order_acquire);
    if (copying > 0 && copying + bytes > link_.options.save_copy_bytes) return false;
    copying_.fetch_add(bytes, std::memory_order_relaxed);
    save.begun = link_.desk.now();
  }
  const Result<bool> copied = copy(save);
  if (copied.ok() && *copied) {
    save.index = 0;
    ++save.part;
  }
  if (!copied.ok() || save.part == save.move.parts.size()) {
    end_host(save, result_of(copied.status()));
    to_host_.pop_front();
  }
  return true;
}

// Both ends are others' when its end is told: not before what was begun is over. A save has the link from
// when the one before it ended.
void MoverSaves::end_host(const Save& save, MoveResult result) {
  link_.backend.after_saves([this, move = save.move, begun = save.begun, result](const Status& status) {
    copying_.fetch_sub(link_.desk.bytes_of(move), std::memory_order_release);
    const Nanos free_at = std::exchange(link_free_at_, link_.desk.now());
    link_.desk.end(move, result == MoveResult::kDone ? result_of(status) : result, std::max(begun, free_at));
  });
}

bool MoverSaves::step(Lane& lane) {
  if (lane.saves.empty()) return false;
  Save& save = lane.saves.front();
  if (save.begun == kNever) {
    const std::uint64_t bytes = link_.desk.bytes_of(save.move);
    const std::uint64_t buffered = lane.buffered.load(std::memory_order_acquire);
    if (buffered > 0 && buffered + bytes > link_.options.save_buffer_bytes) return false;
    lane.buffered.fetch_add(bytes, std::memory_order_relaxed);
    save.begun = link_.desk.now();
    save.write = std::make_shared<MoverWrite>(save.move, save.begun);
    if (link_.options.captures != nullptr) save.passes = link_.options.captures->ended();
  }
  if (save.move.form == StateForm::kHidden) {
    if (!has_rows(save)) return false;
    write_hidden(save, lane);
    lane.saves.pop_front();
    return true;
  }
  const MovePart& part = save.move.parts[save.part];
  if (save.buffer.empty()) save.buffer.resize(link_.group(part.group).block_bytes);
  const Result<bool> copied = copy(save);
  if (!copied.ok()) {
    // The parts that are not written have ended, badly.
    save.write->failed = true;
    const std::size_t unwritten = save.move.parts.size() - save.part;
    if (save.write->left.fetch_sub(unwritten) == unwritten) finish(*save.write, lane);
    lane.saves.pop_front();
  } else if (*copied) {
    clear_behind(save);
    write(save, lane);
    if (++save.part == save.move.parts.size()) lane.saves.pop_front();
  }
  return true;
}

// (Not until none is left to copy: while passes come as fast as they are copied, that moment never comes.)
bool MoverSaves::has_rows(const Save& save) {
  const HiddenCaptures* const captures = link_.options.captures;
  awaits_rows_ = captures != nullptr && !captures->is_copied(save.passes);
  return !awaits_rows_;
}

void MoverSaves::write_hidden(Save& save, Lane& lane) {
  const MovePart& part = save.move.parts.front();
  LOCI_CHECK(save.move.parts.size() == 1 && save.move.from == Tier::kDevice,
             "what is captured is of one group, on the device");
  HiddenCaptures* const captures = link_.options.captures;
  const std::span<const std::byte> rows =
      captures == nullptr ? std::span<const std::byte>() : captures->open(part.from, save.move.entry);
  if (rows.empty()) {
    lane.buffered.fetch_sub(link_.desk.bytes_of(save.move), std::memory_order_release);
    link_.desk.end(save.move, MoveResult::kNotCaptured, save.begun);
    return;
  }
  save.buffer.assign(rows.begin(), rows.end());
  captures->close(part.from);
  Status status;
  for (const std::uint32_t layer : link_.group(part.group).layers) {
    if (status.ok()) status = link_.before_slice(save.move, layer);
  }
  if (status.ok()) {
    write(save, lane);
  } else {
    save.write->failed = true;
    finish(*save.write, lane);
  }
}

// Of the end of a sequence only what it holds outlives the process.
void MoverSaves::clear_behind(Save& save) const {
  if (!is_partial(save.move.entry.tokens)) return;
  const LayerGroup& group = link_.group(save.move.parts[save.part].group);
  const std::uint32_t held = tokens_held(save.move.entry.tokens);
  for (std::size_t i = 0; i < group.layers.size(); ++i) {
    const std::uint64_t begin = i * group.layer_slice_bytes;
    link_.backend.clear_tokens(group.layers[i], held,
                               std::span(save.buffer).subspan(begin, group.layer_slice_bytes));
  }
}

void MoverSaves::write(Save& save, Lane& lane) {
  const MovePart& part = save.move.parts[save.part];
  lane.source->write(link_.disk_group(save.move, part.group), part.to, save.move.entry,
                     std::exchange(save.buffer, {}), [this, &lane, write = save.write](const Status& status) {
                       if (!status.ok()) write->failed = true;
                       if (write->left.fetch_sub(1) == 1) finish(*write, lane);
                     });
  save.index = 0;
}

void MoverSaves::finish(const MoverWrite& write, Lane& lane) {
  lane.buffered.fetch_sub(link_.desk.bytes_of(write.move), std::memory_order_release);
  link_.desk.end(write.move, write.failed ? MoveResult::kFailed : MoveResult::kDone, write.begun);
}

Result<bool> MoverSaves::copy(Save& save) {
  const MovePart& part = save.move.parts[save.part];
  const LayerGroup& group = link_.group(part.group);
  const auto all = static_cast<std::uint32_t>(group.layers.size());
  const std::uint64_t steps = (step_bytes_ - 1) / std::max<std::uint64_t>(1, group.layer_slice_bytes) + 1;
  const LayerRange layers{save.index,
                          static_cast<std::uint32_t>(std::min<std::uint64_t>(all, save.index + steps))};
  for (std::uint32_t i = layers.begin; i < layers.end; ++i) {
    LOCI_RETURN_IF_ERROR(link_.before_slice(save.move, group.layers[i]));
  }
  const std::span<std::byte> target = target_of(save, part, layers);
  if (save.move.from == Tier::kHost) {
    const std::span<const std::byte> source = link_.host.slices(part.group, part.from, layers);
    std::memcpy(target.data(), source.data(), source.size());
  } else {
    const SavePiece piece{part.from, target};
    link_.backend.save(part.group, layers, {&piece, 1},
                       save.move.to == Tier::kHost ? BytesHeld::kUntilCopied : BytesHeld::kDuringCall);
  }
  save.index = layers.end;
  return layers.end == all;
}

std::span<std::byte> MoverSaves::target_of(Save& save, const MovePart& part, LayerRange layers) const {
  if (save.move.to == Tier::kHost) return link_.host.slices(part.group, part.to, layers);
  const std::uint64_t slice_bytes = link_.group(part.group).layer_slice_bytes;
  return std::span(save.buffer)
      .subspan(layers.begin * slice_bytes, (layers.end - layers.begin) * slice_bytes);
}

}  // namespace loci
