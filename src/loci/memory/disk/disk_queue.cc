// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_queue.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/memory_pages.h"
#include "loci/base/mutex.h"
#include "loci/memory/disk/disk_format.h"

namespace loci {
namespace {

constexpr std::size_t kLaneBufferBytes = std::size_t{32} << 20;  // of a directory's buffers together
constexpr std::uint32_t kLaneBuffersMin = 6;
// A read that comes waits for the writes that the disk has begun.
constexpr std::uint32_t kWritesMost = 4;
constexpr std::uint32_t kUnansweredMax = 3;

std::byte* aligned_memory(std::size_t bytes, std::size_t alignment) {
  auto* data =
      static_cast<std::byte*>(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
  LOCI_CHECK(data != nullptr, "no memory for a disk buffer");
  return data;
}

}  // namespace

// At most `count` buffers; the lane's operations wait for one. They are cut from huge pages, which the system
// pins for a transfer faster than many small ones. A buffer may come back on any thread: one that a disk
// never answered for is let go of when its thread ends.
class DiskBufferPool {
 public:
  DiskBufferPool(std::size_t bytes, std::uint32_t count)
      : bytes_(bytes), piece_(std::max<std::size_t>(kHugePageBytes, bytes)), most_(count) {}
  ~DiskBufferPool() {
    for (std::byte* piece : pieces_) std::free(piece);
  }

  bool has_one() {
    const MutexLock lock(mutex_);
    return !free_.empty() || made_ < most_;
  }
  std::byte* take() {
    const MutexLock lock(mutex_);
    if (free_.empty()) add_piece();
    std::byte* data = free_.back();
    free_.pop_back();
    return data;
  }
  void give(std::byte* data) {
    const MutexLock lock(mutex_);
    free_.push_back(data);
  }

 private:
  void add_piece() REQUIRES(mutex_) {
    std::byte* piece = aligned_memory(piece_, kHugePageBytes);
    ::madvise(piece, piece_, MADV_HUGEPAGE);  // a wish
    pieces_.push_back(piece);
    for (std::size_t at = 0; at + bytes_ <= piece_; at += bytes_, ++made_) free_.push_back(piece + at);
  }

  const std::size_t bytes_, piece_;
  const std::uint32_t most_;
  Mutex mutex_;
  std::uint32_t made_ GUARDED_BY(mutex_) = 0;
  std::vector<std::byte*> free_ GUARDED_BY(mutex_);
  std::vector<std::byte*> pieces_ GUARDED_BY(mutex_);
};

DiskBuffer::DiskBuffer(DiskBuffer&& other) noexcept
    : pool_(std::move(other.pool_)), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

DiskBuffer& DiskBuffer::operator=(DiskBuffer&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DiskBuffer::~DiskBuffer() {
  if (data_ == nullptr) return;
  if (pool_ != nullptr) {
    pool_->give(data_);
  } else {
    std::free(data_);
  }
}

DiskQueue::DiskQueue(std::unique_ptr<IoEngine> engine, const Clock& clock, const DiskQueueOptions& options)
    : engine_(std::move(engine)),
      clock_(clock),
      answer_limit_(options.answer_limit),
      lane_depth_(std::max(1u, options.depth / options.lanes)),
      lane_writes_(std::clamp(lane_depth_ / 2, 1u, kWritesMost)),
      lanes_(options.lanes),
      rate_(options.bytes_per_second) {
  const auto buffers =
      std::max(kLaneBuffersMin, static_cast<std::uint32_t>(kLaneBufferBytes / options.buffer_bytes));
  for (Lane& lane : lanes_) {
    lane.buffers = std::make_shared<DiskBufferPool>(options.buffer_bytes, std::min(buffers, lane_depth_ + 2));
  }
}

DiskQueue::~DiskQueue() = default;

void DiskQueue::push(DiskOperation operation) {
  Lane& lane = lanes_[operation.lane];
  std::deque<Queued>& waiting = operation.write ? lane.writes : lane.reads;
  waiting.push_back({std::move(operation), clock_.now()});
}

bool DiskQueue::idle() const {
  return in_flight_.size() == abandoned_ && std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
           return lane.reads.empty() && lane.writes.empty();
         });
}

IoRequest DiskQueue::request_of(std::uint64_t id, const InFlight& one) const {
  return {.id = id,
          .lane = one.operation.lane,
          .write = one.operation.write,
          .discard = one.operation.discard,
          .file = one.operation.file,
          .offset = one.operation.offset + one.moved,
          .data = one.data->bytes().data() + one.moved,
          .bytes = one.operation.bytes - one.moved,
          .memory = one.data};
}

// The first of `waiting`; false where it has to wait for a buffer.
bool DiskQueue::begin(Lane& lane, std::deque<Queued>& waiting, std::vector<IoRequest>& requests) {
  // Records are small and their number is bounded by the depth.
  const bool discard = waiting.front().operation.discard;
  const bool pooled = !discard && waiting.front().operation.bytes >= kDiskAlignment;
  if (pooled && !lane.buffers->has_one()) return false;
  DiskOperation operation = std::move(waiting.front().operation);
  waiting.pop_front();
  DiskBuffer data =
      discard  ? DiskBuffer()
      : pooled ? DiskBuffer(lane.buffers, lane.buffers->take(), operation.bytes)
               : DiskBuffer(nullptr, aligned_memory(operation.bytes, kDiskAlignment), operation.bytes);
  if (!operation.owner->prepare(operation.step, data.bytes())) return true;
  const std::uint64_t id = next_id_++;
  ++lane.in_flight;
  lane.writes_in_flight += operation.write ? 1 : 0;
  const auto one = in_flight_
                       .emplace(id, InFlight{std::move(operation), clock_.now(),
                                             std::make_shared<DiskBuffer>(std::move(data))})
                       .first;
  requests.push_back(request_of(id, one->second));
  if (!one->second.operation.discard) rate_.begin(one->second.operation.bytes, clock_.now());
  return true;
}

void DiskQueue::refuse(std::deque<Queued>& waiting, Nanos& tried, Nanos now) {
  if (waiting.empty()) return;
  std::deque<Queued> refused = std::exchange(waiting, {});
  if (refused.front().probe || now - tried > answer_limit_) {
    if (!std::exchange(refused.front().probe, true)) tried = now;
    waiting.push_back(std::move(refused.front()));
    refused.pop_front();
  }
  for (const Queued& one : refused) one.operation.owner->ended(one.operation.step, -ETIME, DiskBuffer());
}

void DiskQueue::refuse_at_closed_lanes() {
  const Nanos now = clock_.now();
  for (Lane& lane : lanes_) {
    if (lane.unanswered < kUnansweredMax) continue;
    refuse(lane.reads, lane.read_tried, now);
    refuse(lane.writes, lane.write_tried, now);
  }
}

// What was pushed by the end of one that was refused: it is refused in its turn.
bool DiskQueue::waits_closed(const Lane& lane, const std::deque<Queued>& waiting) {
  return lane.unanswered >= kUnansweredMax && !waiting.front().probe;
}

bool DiskQueue::begin_read(Lane& lane, std::vector<IoRequest>& requests) {
  return lane.in_flight < lane_depth_ && !lane.reads.empty() && !waits_closed(lane, lane.reads) &&
         begin(lane, lane.reads, requests);
}

bool DiskQueue::begin_write(Lane& lane, std::vector<IoRequest>& requests) {
  return lane.reads.empty() && lane.in_flight < lane_depth_ && lane.writes_in_flight < lane_writes_ &&
         !lane.writes.empty() && !waits_closed(lane, lane.writes) && begin(lane, lane.writes, requests);
}

// One of each lane after the other, as long as the rate allows: no directory starves beside another.
void DiskQueue::begin_in_turn(bool (DiskQueue::*begin_one)(Lane&, std::vector<IoRequest>&),
                              std::vector<IoRequest>& requests) {
  for (std::size_t idle = 0; idle < lanes_.size() && rate_.wait(clock_.now()) == 0;) {
    Lane& lane = lanes_[next_lane_];
    next_lane_ = (next_lane_ + 1) % lanes_.size();
    idle = (this->*begin_one)(lane, requests) ? 0 : idle + 1;
  }
}

bool DiskQueue::waits_for_rate() const {
  return rate_.wait(clock_.now()) > 0 && std::any_of(lanes_.begin(), lanes_.end(), [this](const Lane& lane) {
           return lane.in_flight < lane_depth_ && (!lane.reads.empty() || !lane.writes.empty());
         });
}

void DiskQueue::begin_what_may() {
  refuse_at_closed_lanes();
  std::vector<IoRequest> requests;
  begin_in_turn(&DiskQueue::begin_read, requests);
  begin_in_turn(&DiskQueue::begin_write, requests);
  rate_.hold(waits_for_rate());
  if (!requests.empty()) engine_->submit(std::move(requests));
}

void DiskQueue::end(const IoEnd& io, std::vector<IoRequest>& again) {
  const auto found = in_flight_.find(io.id);
  InFlight& one = found->second;
  Lane& lane = lanes_[one.operation.lane];
  lane.answered = clock_.now();
  lane.unanswered = 0;
  const bool wanted = !one.given_up;
  const std::size_t left = one.operation.bytes - one.moved;
  // What is left of a short read or write is asked for again, from an aligned place.
  std::size_t got = io.result > 0 ? std::min(left, static_cast<std::size_t>(io.result)) : 0;
  if (got < left && one.operation.file->direct()) got = got / kDiskAlignment * kDiskAlignment;
  const bool interrupted = io.result == -EINTR || io.result == -EAGAIN;
  if (wanted && ((got > 0 && got < left) || interrupted)) {
    one.moved += got;
    again.push_back(request_of(io.id, one));
    return;
  }
  InFlight last = std::move(one);
  in_flight_.erase(found);
  --lane.in_flight;
  lane.writes_in_flight -= last.operation.write ? 1 : 0;
  if (!wanted) {
    --abandoned_;
    if (last.operation.write) last.operation.owner->answered_late(last.operation.step);
    return;
  }
  // That nobody answered is for this queue to say.
  const std::int64_t result = io.result == -ETIME ? -EIO
                              : io.result < 0     ? io.result
                                                  : static_cast<std::int64_t>(last.moved + got);
  last.operation.owner->ended(last.operation.step, result,
                              last.operation.write ? DiskBuffer() : std::move(*last.data));
}

void DiskQueue::expire_queue(std::deque<Queued>& waiting, const Lane& lane, Nanos now) {
  // It is the rate that keeps them waiting, not the disk, even if it still owes answers.
  const bool has_place =
      lane.in_flight < lane_depth_ && (&waiting == &lane.reads || lane.writes_in_flight < lane_writes_);
  if (has_place && rate_.wait(now) > 0) return;
  while (!waiting.empty() && now - std::max(waiting.front().since, lane.answered) > answer_limit_) {
    const DiskOperation operation = std::move(waiting.front().operation);
    waiting.pop_front();
    operation.owner->ended(operation.step, -ETIME, DiskBuffer());
  }
}

void DiskQueue::expire(Nanos now) {
  if (now - expired_at_ < answer_limit_ / 8) return;
  expired_at_ = now;
  std::vector<std::pair<std::shared_ptr<DiskOperationOwner>, std::uint32_t>> given_up;
  for (auto& [id, one] : in_flight_) {
    if (one.given_up || now - one.since <= answer_limit_) continue;
    one.given_up = true;
    given_up.emplace_back(one.operation.owner, one.operation.step);
    if (!one.operation.write) one.operation.owner = nullptr;
    Lane& lane = lanes_[one.operation.lane];
    if (++lane.unanswered == kUnansweredMax) lane.read_tried = lane.write_tried = now;
    ++abandoned_;
  }
  for (const auto& [owner, step] : given_up) owner->ended(step, -ETIME, DiskBuffer());
  for (Lane& lane : lanes_) {
    expire_queue(lane.reads, lane, now);
    expire_queue(lane.writes, lane, now);
  }
}

void DiskQueue::poll(Nanos most) {
  begin_what_may();
  std::vector<IoEnd> ended;
  const Nanos paid = rate_.wait(clock_.now());
  engine_->wait(idle() ? most : std::min({most, answer_limit_ / 8, paid > 0 ? paid : most}), ended);
  std::vector<IoRequest> again;
  for (std::size_t i = 0; i < ended.size(); ++i) {
    end(ended[i], again);
    // The disk gets more to do before all of its answers have been looked at.
    if (i % 4 == 3) begin_what_may();
  }
  if (!again.empty()) engine_->submit(std::move(again));
  begin_what_may();  // before it expires: it may have waited for the rate alone
  expire(clock_.now());
}

}  // namespace loci
