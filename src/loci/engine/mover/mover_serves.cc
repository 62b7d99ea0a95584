// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/mover/mover_serves.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "loci/base/mutex.h"

namespace loci {
namespace {

constexpr std::uint64_t kServeStepBytes = 256u << 10;  // a load waits for no more

}  // namespace

struct MoverServes::Left {
  Left(const Move& m, Nanos b) : move(m), begun(b), parts(m.parts.size()) {}
  const Move move;
  const Nanos begun;
  std::atomic<std::size_t> parts;
  std::atomic<MoveResult> result{MoveResult::kDone};
};

// Puts the slices of a move's parts together. What is given up is gone at once, and what the disk brings of
// it later is dropped.
class MoverServes::FromDisk final : public BlockReadSink {
 public:
  FromDisk(const MoverServes& serves, std::shared_ptr<Left> left) : serves_(serves), left_(std::move(left)) {
    for (const MovePart& part : left_->move.parts) {
      parts_.push_back({serves.buffers_.take(serves.link_.group(part.group).block_bytes)});
      std::ranges::fill(parts_.back().bytes, std::byte{0});  // of another's state nothing may be left
    }
  }

  void slices(std::size_t item, std::uint32_t first, std::uint32_t count,
              std::span<const std::byte> bytes) override {
    const std::uint64_t slice_bytes = serves_.link_.group(left_->move.parts.at(item).group).layer_slice_bytes;
    const MutexLock lock(mutex_);
    if (parts_[item].over) return;
    std::vector<std::byte>& part = parts_[item].bytes;
    LOCI_CHECK(bytes.size() == count * slice_bytes && first * slice_bytes + bytes.size() <= part.size(),
               "the disk brings whole slices of the part");
    std::memcpy(part.data() + first * slice_bytes, bytes.data(), bytes.size());
  }
  void done(std::size_t item, Status status) override {
    const auto part = static_cast<std::uint32_t>(item);
    std::vector<std::byte> bytes;
    if (!end(item, bytes)) return;
    if (status.ok()) return serves_.give(left_, part, std::move(bytes));
    serves_.buffers_.give_back(std::move(bytes));
    serves_.fail(left_, part, status);
  }

  Nanos deadline() const { return left_->begun + serves_.link_.options.load_limit; }
  void give_up() {
    std::vector<std::byte> bytes;
    for (std::size_t item = 0; item < left_->move.parts.size(); ++item) {
      if (!end(item, bytes)) continue;
      serves_.buffers_.give_back(std::move(bytes));
      serves_.fail(left_, static_cast<std::uint32_t>(item), {StatusCode::kDeadlineExceeded, "too slow"});
    }
  }
  bool over() const {
    const MutexLock lock(mutex_);
    return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.over; });
  }

 private:
  struct Part {
    std::vector<std::byte> bytes;
    bool over = false;
  };

  // The first end counts: false for others.
  bool end(std::size_t item, std::vector<std::byte>& bytes) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    Part& part = parts_.at(item);
    bytes = std::exchange(part.bytes, {});
    return !std::exchange(part.over, true);
  }

  const MoverServes& serves_;
  const std::shared_ptr<Left> left_;
  mutable Mutex mutex_;
  std::vector<Part> parts_ GUARDED_BY(mutex_);
};

std::vector<std::byte> MoverServes::Buffers::take(std::uint64_t bytes) {
  std::vector<std::byte> buffer;
  {
    const MutexLock lock(mutex_);
    ++taken_;
    if (!free_.empty()) {
      buffer = std::move(free_.back());
      free_.pop_back();
    }
  }
  buffer.resize(bytes);  // (Groups' parts differ in size.)
  return buffer;
}

// As many are free at most as were taken at once, which the core bounds.
void MoverServes::Buffers::give_back(std::vector<std::byte> buffer) {
  std::vector<std::vector<std::byte>> freed;  // behind the lock
  const MutexLock lock(mutex_);
  free_.push_back(std::move(buffer));
  if (--taken_ == 0) freed.swap(free_);
}

MoverServes::MoverServes(const MoverLink& link, BlockSource* disk, PeerOutlet* outlet)
    : link_(link), disk_(disk), outlet_(outlet) {}

void MoverServes::add(std::vector<Move> moves) {
  for (Move& move : moves) {
    LOCI_CHECK(outlet_ != nullptr && move.form == StateForm::kKeysAndValues && move.rotate_by == 0,
               "who reads this server's state is known, and reads keys and values");
    serves_.push_back({.move = std::move(move)});
  }
}

bool MoverServes::step() {
  if (serves_.empty()) return false;
  Serve& serve = serves_.front();
  if (serve.begun == kNever) {
    serve.begun = link_.desk.now();
    serve.left = std::make_shared<Left>(serve.move, serve.begun);
  }
  if (serve.move.from == Tier::kDisk) {
    std::vector<BlockRead> items;
    for (const MovePart& part : serve.move.parts)
      items.push_back({.group = part.group, .slot = part.from, .key = serve.move.entry.key});
    reads_.push_back(std::make_shared<FromDisk>(*this, serve.left));
    disk_->read(std::move(items), 0, reads_.back());
    serves_.pop_front();
    return true;
  }
  const MovePart& part = serve.move.parts[serve.part];
  if (serve.buffer.empty()) serve.buffer = buffers_.take(link_.group(part.group).block_bytes);
  const Result<bool> copied = copy(serve);
  if (copied.ok() && !*copied) return true;
  if (copied.ok()) {
    give(serve.left, serve.part, std::exchange(serve.buffer, {}));
  } else {
    buffers_.give_back(std::exchange(serve.buffer, {}));
    fail(serve.left, serve.part, copied.status());
  }
  serve.index = 0;
  if (++serve.part == serve.move.parts.size()) serves_.pop_front();
  return true;
}

Nanos MoverServes::give_up_late() {
  if (reads_.empty()) return kNever;
  const Nanos now = link_.desk.now();
  for (const std::shared_ptr<FromDisk>& read : reads_) {
    if (read->deadline() <= now) read->give_up();
  }
  std::erase_if(reads_, [](const std::shared_ptr<FromDisk>& read) { return read->over(); });
  return reads_.empty() ? kNever : reads_.front()->deadline();
}

Result<bool> MoverServes::copy(Serve& serve) const {
  const MovePart& part = serve.move.parts[serve.part];
  const LayerGroup& group = link_.group(part.group);
  const auto all = static_cast<std::uint32_t>(group.layers.size());
  const std::uint64_t slice_bytes = group.layer_slice_bytes;
  const std::uint64_t steps = (kServeStepBytes - 1) / std::max<std::uint64_t>(1, slice_bytes) + 1;
  const LayerRange layers{serve.index,
                          static_cast<std::uint32_t>(std::min<std::uint64_t>(all, serve.index + steps))};
  const std::span<std::byte> target =
      std::span(serve.buffer).subspan(layers.begin * slice_bytes, (layers.end - layers.begin) * slice_bytes);
  for (std::uint32_t i = layers.begin; i < layers.end; ++i) {
    LOCI_RETURN_IF_ERROR(link_.before_slice(serve.move, group.layers[i]));
  }
  if (serve.move.from == Tier::kHost) {
    const std::span<const std::byte> source = link_.host.slices(part.group, part.from, layers);
    std::memcpy(target.data(), source.data(), source.size());
  } else {
    const SavePiece piece{part.from, target};
    link_.backend.save(part.group, layers, {&piece, 1}, BytesHeld::kDuringCall);
  }
  serve.index = layers.end;
  return layers.end == all;
}

// (Whether the peer takes it is nothing that the move's source is to blame for.)
void MoverServes::give(const std::shared_ptr<Left>& left, std::uint32_t part,
                       std::vector<std::byte> bytes) const {
  outlet_->give(*left->move.peer, left->move.parts[part].group, std::move(bytes),
                [this, left](std::vector<std::byte> buffer) {
                  buffers_.give_back(std::move(buffer));
                  end_part(*left);
                });
}

void MoverServes::fail(const std::shared_ptr<Left>& left, std::uint32_t part, const Status& why) const {
  left->result = result_of(why);
  outlet_->gone({*left->move.peer, static_cast<std::uint8_t>(1u << left->move.parts[part].group)});
  end_part(*left);
}

void MoverServes::end_part(Left& left) const {
  if (left.parts.fetch_sub(1) == 1) link_.desk.end(left.move, left.result, left.begun);
}

}  // namespace loci
