#include "loci/engine/mover_saves.h"

#include <cstring>
#include <utility>

namespace loci {
namespace {

constexpr std::uint64_t kStepBytes = 256u << 10;  // a load waits for no more

}  // namespace

// A move whose parts the store writes; it ends with the last of them.
struct MoverWrite {
  MoverWrite(const Move& m, Nanos b) : move(m), begun(b), left(m.parts.size()) {}
  const Move move;
  const Nanos begun;
  std::atomic<std::size_t> left;
  std::atomic<bool> failed{false};
};

void MoverSaves::add(std::vector<Move> moves) {
  for (Move& move : moves) {
    LOCI_CHECK(move.to == Tier::kHost || store_ != nullptr, "a move to a disk needs one");
    (move.to == Tier::kHost ? to_host_ : to_disk_).push_back({.move = std::move(move)});
  }
}

bool MoverSaves::step() { return step_host() || step_disk(); }

bool MoverSaves::step_host() {
  if (to_host_.empty()) return false;
  Save& save = to_host_.front();
  if (save.begun == kNever) save.begun = link_.desk.now();
  const Result<bool> copied = copy(save);
  if (copied.ok() && *copied) {
    save.index = 0;
    ++save.part;
  }
  if (!copied.ok() || save.part == save.move.parts.size()) {
    link_.desk.end(save.move, result_of(copied.status()), save.begun);
    to_host_.pop_front();
  }
  return true;
}

bool MoverSaves::step_disk() {
  if (to_disk_.empty()) return false;
  Save& save = to_disk_.front();
  if (save.begun == kNever) {
    const std::uint64_t bytes = link_.desk.bytes_of(save.move);
    const std::uint64_t buffered = buffered_.load(std::memory_order_acquire);
    if (buffered > 0 && buffered + bytes > link_.options.save_buffer_bytes) return false;
    buffered_.fetch_add(bytes, std::memory_order_relaxed);
    save.begun = link_.desk.now();
    save.write = std::make_shared<MoverWrite>(save.move, save.begun);
  }
  const MovePart& part = save.move.parts[save.part];
  if (save.buffer.empty()) save.buffer.resize(link_.group(part.group).block_bytes);
  const Result<bool> copied = copy(save);
  if (!copied.ok()) {
    // The parts that are not written have ended, badly.
    save.write->failed = true;
    const std::size_t unwritten = save.move.parts.size() - save.part;
    if (save.write->left.fetch_sub(unwritten) == unwritten) finish(*save.write);
    to_disk_.pop_front();
  } else if (*copied) {
    write(save);
    if (++save.part == save.move.parts.size()) to_disk_.pop_front();
  }
  return true;
}

void MoverSaves::write(Save& save) {
  const MovePart& part = save.move.parts[save.part];
  store_->write(part.group, part.to, save.move.entry, std::exchange(save.buffer, {}),
                [this, write = save.write](const Status& status) {
                  if (!status.ok()) write->failed = true;
                  if (write->left.fetch_sub(1) == 1) finish(*write);
                });
  save.index = 0;
}

void MoverSaves::finish(const MoverWrite& write) {
  buffered_.fetch_sub(link_.desk.bytes_of(write.move), std::memory_order_release);
  link_.desk.end(write.move, write.failed ? MoveResult::kFailed : MoveResult::kDone, write.begun);
}

Result<bool> MoverSaves::copy(Save& save) {
  const MovePart& part = save.move.parts[save.part];
  const LayerGroup& group = link_.group(part.group);
  for (std::uint64_t bytes = 0; save.index < group.layers.size() && bytes < kStepBytes; ++save.index) {
    const std::uint32_t layer = group.layers[save.index];
    LOCI_RETURN_IF_ERROR(link_.before_slice(save.move, layer));
    const std::span<std::byte> target = target_of(save, part);
    if (save.move.from == Tier::kDevice) {
      link_.backend.read_layer(part.from, layer, target);
    } else {
      const std::span<const std::byte> source = link_.host.slice(part.group, part.from, save.index);
      std::memcpy(target.data(), source.data(), source.size());
    }
    bytes += group.layer_slice_bytes;
  }
  return save.index == group.layers.size();
}

std::span<std::byte> MoverSaves::target_of(Save& save, const MovePart& part) const {
  if (save.move.to == Tier::kHost) return link_.host.slice(part.group, part.to, save.index);
  const std::uint64_t slice_bytes = link_.group(part.group).layer_slice_bytes;
  return std::span(save.buffer).subspan(save.index * slice_bytes, slice_bytes);
}

}  // namespace loci
