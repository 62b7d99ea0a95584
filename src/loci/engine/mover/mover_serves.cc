// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/mover/mover_serves.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <optional>
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

// A part that the outlet has: memory of a tier, or a copy. The slot is held until the move has ended.
class MoverServes::Given final : public PeerBytes {
 public:
  Given(const MoverServes& serves, std::shared_ptr<Left> left, std::span<const std::byte> lent)
      : serves_(serves), left_(std::move(left)), bytes_(lent) {}
  Given(const MoverServes& serves, std::shared_ptr<Left> left, std::vector<std::byte> copy)
      : serves_(serves), left_(std::move(left)), copy_(std::move(copy)), bytes_(*copy_) {}
  ~Given() override {
    if (copy_) serves_.buffers_.give_back(std::move(*copy_));  // of no bytes, too
    serves_.end_part(*left_);
  }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;
  std::span<const std::byte> bytes() const override { return bytes_; }

 private:
  const MoverServes& serves_;
  const std::shared_ptr<Left> left_;
  std::optional<std::vector<std::byte>> copy_;
  const std::span<const std::byte> bytes_;
};

// Puts the slices of a move's parts together. What is given up is gone at once, and what the disk brings of
// it later is dropped.
class MoverServes::FromDisk final : public BlockReadSink {
 public:
  FromDisk(const MoverServes& serves, std::shared_ptr<Left> left) : serves_(serves), left_(std::move(left)) {
    for (std::uint32_t part = 0; part < left_->move.parts.size(); ++part) {
      parts_.push_back({serves.buffers_.take(serves.bytes_of(left_->move, part))});
      std::ranges::fill(parts_.back().bytes, std::byte{0});  // of another's state nothing may be left
    }
  }

  void slices(std::size_t item, std::uint32_t first, std::uint32_t count,
              std::span<const std::byte> bytes) override {
    const std::uint64_t slice_bytes = serves_.link_.group(left_->move.parts.at(item).group).layer_slice_bytes;
    const MutexLock lock(mutex_);
    if (parts_[item].over) return;
    std::vector<std::byte>& part = parts_[item].bytes;
    const LayerRange wanted = serves_.layers_of(left_->move, static_cast<std::uint32_t>(item));
    LOCI_CHECK(bytes.size() == count * slice_bytes, "the disk brings whole slices");
    const std::uint32_t begin = std::max(first, wanted.begin), end = std::min(first + count, wanted.end);
    if (begin >= end) return;
    const auto slices = bytes.subspan((begin - first) * slice_bytes, (end - begin) * slice_bytes);
    std::memcpy(part.data() + (begin - wanted.begin) * slice_bytes, slices.data(), slices.size());
  }
  void done(std::size_t item, Status status) override {
    const auto part = static_cast<std::uint32_t>(item);
    std::vector<std::byte> bytes;
    if (!end(item, bytes)) return;
    if (status.ok())
      return serves_.give(left_, part, std::make_unique<Given>(serves_, left_, std::move(bytes)));
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

// The latest that fits: its memory may still be in the processor's caches.
std::vector<std::byte> MoverServes::Buffers::take(std::uint64_t bytes) {
  std::vector<std::byte> buffer;
  {
    const MutexLock lock(mutex_);
    ++taken_;
    const auto fits = [bytes](const std::vector<std::byte>& one) {
      return one.capacity() >= bytes && one.capacity() <= 2 * bytes;
    };
    const auto found = std::find_if(free_.rbegin(), free_.rend(), fits);
    if (found != free_.rend()) {
      buffer = std::move(*found);
      free_.erase(std::next(found).base());
    }
  }
  buffer.resize(bytes);
  return buffer;
}

void MoverServes::Buffers::give_back(std::vector<std::byte> buffer) {
  std::deque<std::vector<std::byte>> freed;  // behind the lock
  const MutexLock lock(mutex_);
  free_.push_back(std::move(buffer));
  if (--taken_ == 0) {
    freed.swap(free_);
  } else if (free_.size() > kFreeMax) {
    freed.push_back(std::move(free_.front()));
    free_.pop_front();
  }
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
  const LayerRange layers = layers_of(serve.move, serve.part);
  if (layers.begin == layers.end) {  // nothing of this group
    end_part(*serve.left);
    end_front_part(serve);
    return true;
  }
  const LayerRange next = next_layers(serve);
  const Status status = check_slices(serve.move, serve.part, next);
  // (A view projects hidden states, so it is taken of few layers, too.)
  const bool is_lent = status.ok() && !view(serve.move, serve.part, next).empty();
  if (status.ok() && !is_lent) copy(serve, next);
  serve.done = next.end - layers.begin;
  if (status.ok() && next.end < layers.end) return true;
  if (!status.ok()) {
    if (!serve.buffer.empty()) buffers_.give_back(std::exchange(serve.buffer, {}));
    fail(serve.left, serve.part, status);
  } else if (is_lent) {
    const std::span<const std::byte> lent = view(serve.move, serve.part, layers);
    give(serve.left, serve.part, std::make_unique<Given>(*this, serve.left, lent));
  } else {
    give(serve.left, serve.part, std::make_unique<Given>(*this, serve.left, std::exchange(serve.buffer, {})));
  }
  end_front_part(serve);
  return true;
}

LayerRange MoverServes::next_layers(const Serve& serve) const {
  const LayerRange all = layers_of(serve.move, serve.part);
  if (serve.move.from == Tier::kHost) return all;
  const std::uint64_t slice_bytes = link_.group(serve.move.parts[serve.part].group).layer_slice_bytes;
  const std::uint64_t count = (kServeStepBytes - 1) / std::max<std::uint64_t>(1, slice_bytes) + 1;
  const std::uint32_t begin = all.begin + serve.done;
  return {begin, static_cast<std::uint32_t>(std::min<std::uint64_t>(all.end, begin + count))};
}

std::span<const std::byte> MoverServes::view(const Move& move, std::uint32_t part, LayerRange layers) const {
  const MovePart& of = move.parts[part];
  return move.from == Tier::kHost ? link_.host.slices(of.group, of.from, layers)
                                  : link_.backend.view(of.group, of.from, layers);
}

Status MoverServes::check_slices(const Move& move, std::uint32_t part, LayerRange layers) const {
  const LayerGroup& group = link_.group(move.parts[part].group);
  for (std::uint32_t i = layers.begin; i < layers.end; ++i)
    LOCI_RETURN_IF_ERROR(link_.before_slice(move, group.layers[i]));
  return {};
}

void MoverServes::end_front_part(Serve& serve) {
  serve.done = 0;
  if (++serve.part == serve.move.parts.size()) serves_.pop_front();
}

LayerRange MoverServes::layers_of(const Move& move, std::uint32_t part) const {
  return loci::layers_of(move.peer->rounds, link_.group(move.parts[part].group), link_.backend.info().layers);
}

std::uint64_t MoverServes::bytes_of(const Move& move, std::uint32_t part) const {
  const LayerRange layers = layers_of(move, part);
  return (layers.end - layers.begin) * link_.group(move.parts[part].group).layer_slice_bytes;
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

void MoverServes::copy(Serve& serve, LayerRange layers) const {
  const MovePart& part = serve.move.parts[serve.part];
  const std::uint64_t slice_bytes = link_.group(part.group).layer_slice_bytes;
  if (serve.buffer.empty()) serve.buffer = buffers_.take(bytes_of(serve.move, serve.part));
  const std::span<std::byte> target =
      std::span(serve.buffer).subspan(serve.done * slice_bytes, (layers.end - layers.begin) * slice_bytes);
  const SavePiece piece{part.from, target};
  link_.backend.save(part.group, layers, {&piece, 1}, BytesHeld::kDuringCall);
}

// (Whether the peer takes it is nothing that the move's source is to blame for.)
void MoverServes::give(const std::shared_ptr<Left>& left, std::uint32_t part,
                       std::unique_ptr<const Given> given) const {
  const std::uint32_t group = left->move.parts[part].group;
  const LayerRange layers = layers_of(left->move, part);
  if (layers.begin == layers.end) return;  // read from the disk for nothing
  const PeerSlices slices{.place = *left->move.peer,
                          .group = group,
                          .first = layers.begin,
                          .layer_bytes = link_.group(group).layer_slice_bytes,
                          .is_last = layers.end == link_.group(group).layers.size()};
  outlet_->give(slices, std::move(given));
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
