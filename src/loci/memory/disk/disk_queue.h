// SPDX-License-Identifier: Apache-2.0
// The queue in front of the disks: reads before writes, bounded depth and buffers for each directory, a
// time limit for each answer, a rate for all together.
//
// A *lane* is a directory's queue, so that a disk which is slow or dead holds up nothing but itself. An
// operation that does not answer in time ends with -ETIME; its memory stays untouched until the disk does
// answer, or for ever. A lane that left kUnansweredMax operations in a row without an answer is closed: until
// one of its operations is answered, they end with -ETIME at once, except one read and one write in each
// answer_limit. So what waits for it takes no place from what goes to other lanes.
//
// Thread-compatible: the store's thread owns it (but for wake()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "loci/base/clock.h"
#include "loci/memory/disk/disk_io.h"
#include "loci/memory/disk/io_rate.h"

namespace loci {

class DiskBufferPool;

// Aligned memory that goes back to its pool. Move-only; may be let go of on any thread.
class DiskBuffer {
 public:
  DiskBuffer() = default;
  DiskBuffer(std::shared_ptr<DiskBufferPool> pool, std::byte* data, std::size_t bytes)
      : pool_(std::move(pool)), data_(data), bytes_(bytes) {}
  DiskBuffer(DiskBuffer&& other) noexcept;
  DiskBuffer& operator=(DiskBuffer&& other) noexcept;
  ~DiskBuffer();
  explicit operator bool() const { return data_ != nullptr; }
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  std::shared_ptr<DiskBufferPool> pool_;  // null: of its own
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// What is to be done with an operation; `step` is the owner's name for it.
class DiskOperationOwner {
 public:
  virtual ~DiskOperationOwner() = default;
  // Just before the operation begins. A write's bytes are put into `data`. False: it is not wanted any
  // more, and ended() will not be called.
  virtual bool prepare(std::uint32_t step, std::span<std::byte> data) = 0;
  // Bytes moved, all of them unless the file ends, or -errno. `data` is a read's.
  virtual void ended(std::uint32_t step, std::int64_t result, DiskBuffer data) = 0;
  // The disk has answered a write that had begun and ended with -ETIME: its bytes may have been written since
  // then. Never called if the disk never answers.
  virtual void answered_late(std::uint32_t /*step*/) {}
};

struct DiskOperation {
  std::shared_ptr<DiskOperationOwner> owner;
  std::uint32_t step = 0;
  std::uint32_t lane = 0;
  bool write = false;
  bool discard = false;  // of a write (IoRequest): of any size, and prepare() is given no bytes
  std::shared_ptr<DiskFile> file;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;  // at most the queue's buffer_bytes
};

struct DiskQueueOptions {
  std::uint32_t lanes = 1;
  std::uint32_t depth = 64;              // operations in flight, all lanes together
  std::size_t buffer_bytes = 512 << 10;  // a multiple of kDiskAlignment
  Nanos answer_limit = 10 * kNanosPerSecond;
  std::uint64_t bytes_per_second = 0;  // of reads and writes, all lanes together; 0: no limit
};

class DiskQueue {
 public:
  DiskQueue(std::unique_ptr<IoEngine> engine, const Clock& clock, const DiskQueueOptions& options);
  ~DiskQueue();

  void push(DiskOperation operation);
  // Begins what may begin, waits at most `most` for answers or wake(), and ends what has ended.
  void poll(Nanos most);
  // Nothing is queued, and nobody waits for anything in flight.
  bool idle() const;
  void wake() { engine_->wake(); }  // thread-safe
  const char* engine() const { return engine_->name(); }

 private:
  struct Queued {
    DiskOperation operation;
    Nanos since = 0;
    bool probe = false;  // let through to a closed lane; waits, as others do, for rate, depth and a buffer
  };
  struct InFlight {
    DiskOperation operation;
    Nanos since = 0;
    std::shared_ptr<DiskBuffer> data;
    std::size_t moved = 0;
    bool given_up = false;  // its end has been told; a read has no owner any more
  };
  struct Lane {
    std::deque<Queued> reads, writes;
    std::uint32_t in_flight = 0, writes_in_flight = 0;
    std::uint32_t unanswered = 0;           // in a row
    Nanos read_tried = 0, write_tried = 0;  // when one was last let through though the lane is closed
    Nanos answered = 0;
    std::shared_ptr<DiskBufferPool> buffers;
  };

  static bool waits_closed(const Lane& lane, const std::deque<Queued>& waiting);
  bool begin(Lane& lane, std::deque<Queued>& waiting, std::vector<IoRequest>& requests);
  bool begin_read(Lane& lane, std::vector<IoRequest>& requests);
  bool begin_write(Lane& lane, std::vector<IoRequest>& requests);
  void begin_in_turn(bool (DiskQueue::*begin_one)(Lane&, std::vector<IoRequest>&),
                     std::vector<IoRequest>& requests);
  bool waits_for_rate() const;  // and for nothing else
  void begin_what_may();
  void refuse_at_closed_lanes();
  void refuse(std::deque<Queued>& waiting, Nanos& tried, Nanos now);
  void end(const IoEnd& io, std::vector<IoRequest>& again);
  void expire(Nanos now);
  void expire_queue(std::deque<Queued>& waiting, const Lane& lane, Nanos now);
  IoRequest request_of(std::uint64_t id, const InFlight& one) const;

  std::unique_ptr<IoEngine> engine_;
  const Clock& clock_;
  const Nanos answer_limit_;
  const std::uint32_t lane_depth_, lane_writes_;
  std::vector<Lane> lanes_;
  std::size_t next_lane_ = 0;  // whose turn it is
  IoRate rate_;
  std::unordered_map<std::uint64_t, InFlight> in_flight_;
  std::uint64_t next_id_ = 0;
  std::uint64_t abandoned_ = 0;  // of in_flight_
  Nanos expired_at_ = 0;
};

}  // namespace loci
