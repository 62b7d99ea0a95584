// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/mover/mover_reads.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "loci/base/copy_bytes.h"
#include "loci/base/mutex.h"

namespace loci {
namespace {

constexpr std::uint64_t kPrefetchBytesMax = 8u << 20;  // in flight

}  // namespace

// What one call of the source reads.
class MoverReads::Batch final : public BlockReadSink, public std::enable_shared_from_this<Batch> {
 public:
  Batch(const MoverLink& link, std::vector<Move> moves, Nanos taken)
      : link_(link), begun_(link.desk.now()), left_(moves.size()) {
    Nanos limit = link.options.load_limit;
    std::uint64_t bytes = 0;
    for (Move& move : moves) {
      bytes += link.desk.bytes_of(move);
      limit = std::max(limit, move.time_limit);
      Read& read = reads_.emplace_back(std::move(move));
      for (std::uint32_t i = 0; i < read.move.parts.size(); ++i) items_.push_back({&read, i});
    }
    deadline_ = taken + limit;
    use_ = cache_use_of(bytes);
  }

  std::vector<BlockRead> items() const {
    std::vector<BlockRead> items;
    for (const Item& item : items_) {
      const Move& move = item.read->move;
      items.push_back({.group = link_.disk_group(move, move.parts[item.part].group),
                       .slot = move.parts[item.part].from,
                       .key = move.entry.key});
    }
    return items;
  }

  void slices(std::size_t item, std::uint32_t first, std::uint32_t count,
              std::span<const std::byte> bytes) override {
    Read& read = *items_.at(item).read;
    const MovePart& part = read.move.parts[items_[item].part];
    const LayerGroup& group = link_.group(part.group);
    const std::uint64_t slice_bytes = link_.slice_bytes(read.move, part.group);
    const MutexLock lock(read.mutex);
    if (read.over) return;
    std::uint32_t& arrived = read.arrived[items_[item].part];
    came_.store(true, std::memory_order_relaxed);
    LOCI_CHECK(
        first == arrived && count <= group.layers.size() - first && bytes.size() == count * slice_bytes,
        "the source brings each slice once and in order");
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto slice = bytes.subspan(i * slice_bytes, slice_bytes);
      if (read.move.to == Tier::kDevice) {
        link_.arrive(read.move, part, first + i, slice, use_);
      } else {  // nobody reads it soon
        copy_bytes(link_.host.slice(part.group, part.to, first + i), slice, CacheUse::kBypass);
      }
    }
    arrived += count;
  }

  void done(std::size_t item, Status status) override {
    Read& read = *items_.at(item).read;
    if (!status.ok()) {
      end(read, result_of(status));
      return;
    }
    {
      const MutexLock lock(read.mutex);
      LOCI_CHECK(read.over || missing(read, items_[item].part) == 0, "what was read well is whole");
      if (--read.parts_left > 0) return;
    }
    end(read, MoveResult::kDone);
  }

  bool wanted(std::size_t item) override {
    Read& read = *items_.at(item).read;
    const MutexLock lock(read.mutex);
    return !read.over;
  }

  void give_up() {
    for (Read& read : reads_) end(read, MoveResult::kTooSlow);
  }

  bool over() const { return left_.load(std::memory_order_acquire) == 0; }
  Nanos deadline() const { return deadline_; }
  // Of prefetches that are in flight.
  std::uint64_t prefetch_bytes() const {
    if (reads_.empty() || reads_.front().move.to != Tier::kHost) return 0;
    std::uint64_t bytes = 0;
    for (const Read& read : reads_) bytes += link_.desk.bytes_of(read.move);
    return bytes;
  }

 private:
  struct Read {
    explicit Read(Move m)
        : move(std::move(m)), parts_left(move.parts.size()), arrived(move.parts.size(), 0) {}
    const Move move;
    // Guards the targets' bytes too, while it is not over: under it the backend is called.
    Mutex mutex{LockOrder::kOuter};
    bool over GUARDED_BY(mutex) = false;
    std::size_t parts_left GUARDED_BY(mutex);
    std::vector<std::uint32_t> arrived GUARDED_BY(mutex);  // layers of each part
  };
  struct Item {
    Read* read;
    std::uint32_t part;
  };

  std::size_t missing(const Read& read, std::uint32_t part) const REQUIRES(read.mutex) {
    return link_.group(read.move.parts[part].group).layers.size() - read.arrived[part];
  }

  // The first end counts.
  void end(Read& read, MoveResult result) {
    {
      const MutexLock lock(read.mutex);
      if (std::exchange(read.over, true)) return;
      for (std::uint32_t i = 0; i < read.move.parts.size(); ++i) {
        if (read.move.to == Tier::kDevice && missing(read, i) > 0) {
          link_.backend.fill_failed(read.move.parts[i].group, read.move.parts[i].to);
        }
      }
    }
    if (read.move.to != Tier::kDevice) {
      tell(read, result);
      return;
    }
    // Its slots are others' when its end is told: not before what was begun is over.
    link_.backend.after_loads([self = shared_from_this(), &read, result](const Status& status) {
      self->tell(read, result == MoveResult::kDone ? result_of(status) : result);
    });
  }

  void tell(const Read& read, MoveResult result) {
    left_.fetch_sub(1, std::memory_order_release);
    link_.desk.end(read.move, result, begun_,
                   result == MoveResult::kTooSlow && came_.load(std::memory_order_relaxed));
  }

  const MoverLink link_;
  const Nanos begun_;
  Nanos deadline_ = 0;
  CacheUse use_ = CacheUse::kFill;  // how these loads are copied
  std::atomic<bool> came_ = false;  // a slice of any of them
  std::atomic<std::size_t> left_;   // reads whose end is not told
  std::deque<Read> reads_;
  std::vector<Item> items_;
};

MoverReads::MoverReads(const MoverLink& link, BlockSource* source) : link_(link), source_(source) {
  for (const LayerGroup& group : link.backend.info().groups) {
    most_layers_ = std::max(most_layers_, static_cast<std::uint32_t>(group.layers.size()));
  }
}
MoverReads::~MoverReads() = default;

void MoverReads::load(std::vector<Move> moves, Nanos taken) {
  if (!moves.empty()) begin(std::move(moves), taken, 0);
}

void MoverReads::prefetch(std::vector<Move> moves, Nanos taken) {
  for (Move& move : moves) waiting_.push_back({std::move(move), taken});
}

void MoverReads::begin(std::vector<Move> moves, Nanos taken, std::uint32_t layers_at_once) {
  LOCI_CHECK(source_ != nullptr, "what is read has a source");
  auto batch = std::make_shared<Batch>(link_, std::move(moves), taken);
  batches_.push_back(batch);
  std::vector<BlockRead> items = batch->items();
  source_->read(std::move(items), layers_at_once, std::move(batch));
}

void MoverReads::begin_prefetches() {
  if (waiting_.empty()) return;
  std::uint64_t in_flight = 0;
  for (const std::shared_ptr<Batch>& batch : batches_) in_flight += batch->prefetch_bytes();
  while (!waiting_.empty()) {
    const std::uint64_t bytes = link_.desk.bytes_of(waiting_.front().move);
    if (in_flight > 0 && in_flight + bytes > kPrefetchBytesMax) return;
    in_flight += bytes;
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    std::vector<Move> moves;
    moves.push_back(std::move(next.move));
    begin(std::move(moves), next.taken, most_layers_);  // nobody waits for its first layers
  }
}

Nanos MoverReads::step() {
  const Nanos now = link_.desk.now();
  for (const std::shared_ptr<Batch>& batch : batches_) {
    if (batch->deadline() <= now) batch->give_up();
  }
  std::erase_if(batches_, [](const std::shared_ptr<Batch>& batch) { return batch->over(); });
  while (!waiting_.empty() && waiting_.front().taken + link_.options.load_limit <= now) {
    link_.desk.end(waiting_.front().move, MoveResult::kTooSlow, now);
    waiting_.pop_front();
  }
  begin_prefetches();
  Nanos next = kNever;
  for (const std::shared_ptr<Batch>& batch : batches_) {
    if (batch->deadline() > now) next = std::min(next, batch->deadline());
  }
  if (!waiting_.empty()) next = std::min(next, waiting_.front().taken + link_.options.load_limit);
  return next;
}

void MoverReads::abandon() {
  for (const std::shared_ptr<Batch>& batch : batches_) batch->give_up();
  batches_.clear();
  waiting_.clear();
}

}  // namespace loci
