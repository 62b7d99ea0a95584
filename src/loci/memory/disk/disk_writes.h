// SPDX-License-Identifier: Apache-2.0
// Writes entries, forgets them, and writes holes' records. Calls for one slot are carried out in their order.
// A record that is not wanted any more is cleared sooner or later, whatever the disk answers first
// (disk_clears.h). Belongs to the store's thread.
//
// An entry's old header is invalidated before its slices are overwritten, and the new header is written
// after them. So a process that is killed leaves no wrong entry, because the system keeps its writes in
// order. After a loss of power, which may reorder writes, the checksums find damaged entries.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "loci/base/clock.h"
#include "loci/memory/disk/disk_clears.h"
#include "loci/memory/disk/disk_counters.h"
#include "loci/memory/disk/disk_files.h"
#include "loci/memory/disk/disk_queue.h"
#include "loci/memory/disk/disk_store.h"

namespace loci {

struct DiskWrite {
  std::uint32_t group = 0;
  SlotId slot;
  BlockEntry entry;
  std::vector<std::byte> bytes;
  std::function<void(Status)> done;
};

class DiskWriter {
 public:
  // All must outlive it and what it pushes.
  DiskWriter(const DiskFileSet& files, DiskCounters& counters, DiskQueue& queue, const Clock& clock,
             Nanos answer_limit);
  ~DiskWriter();

  void write(DiskWrite write);
  void change(const RecordChange& change);
  // Whether a write or change of the slot is under way that ends what is there, or is tried again.
  bool busy(std::uint32_t group, SlotId slot) const;
  // Tries again to clear records, where a pause is over. Returns how long from now on it need not be called.
  Nanos clear_again();
  // The store ends: it does not wait for long pauses.
  void hurry() { clears_.hurry(); }

 private:
  class Job;
  class EntryJob;
  class RecordJob;
  class DateJob;

  static std::uint64_t name_of(std::uint32_t group, SlotId slot) {
    return (std::uint64_t{group} << 32) | slot.value;
  }
  void add(std::uint32_t group, SlotId slot, std::shared_ptr<Job> job);
  bool is_replaced(std::uint64_t name) const;
  void finished(std::uint64_t name);
  // A record's write, or its read; of `step` of the job.
  void push_record(const std::shared_ptr<Job>& job, std::uint32_t step, std::uint32_t group, SlotId slot);
  void push_record_read(const std::shared_ptr<Job>& job, std::uint32_t step, std::uint32_t group,
                        SlotId slot);
  DiskOperation record_operation(const std::shared_ptr<Job>& job, std::uint32_t step, std::uint32_t group,
                                 SlotId slot) const;

  const DiskFileSet& files_;
  DiskCounters& counters_;
  DiskQueue& queue_;
  const Clock& clock_;
  DiskClears clears_;
  std::unordered_map<std::uint64_t, std::deque<std::shared_ptr<Job>>> jobs_;  // by slot; the first one runs
};

}  // namespace loci
