// SPDX-License-Identifier: Apache-2.0
// Writing entries, forgetting them, and holes. What concerns one slot is carried out in the order of the
// calls. Belongs to the store's thread.
//
// An entry's old header is invalidated before its slices are overwritten, and the new header is written
// after them. That is for a process that is killed, whose writes the system keeps; what a power loss does to
// the order is found by the checksums.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "loci/memory/disk/disk_counters.h"
#include "loci/memory/disk/disk_files.h"
#include "loci/memory/disk/disk_queue.h"
#include "loci/memory/disk/disk_store.h"

namespace loci {

struct DiskWrite {
  std::uint32_t group = 0;
  SlotId slot;
  DiskEntry entry;
  std::vector<std::byte> bytes;
  std::function<void(Status)> done;
};

class DiskWriter {
 public:
  // All must outlive it and what it pushes.
  DiskWriter(const DiskFileSet& files, DiskCounters& counters, DiskQueue& queue);
  ~DiskWriter();

  void write(DiskWrite write);
  void note(const DiskNote& note);
  // Whether a write or note of the slot is under way that ends what is there.
  bool busy(std::uint32_t group, SlotId slot) const;

 private:
  class Job;
  class EntryJob;
  class RecordJob;
  class DateJob;

  static std::uint64_t name_of(std::uint32_t group, SlotId slot) {
    return (std::uint64_t{group} << 32) | slot.value;
  }
  void add(std::uint32_t group, SlotId slot, std::shared_ptr<Job> job);
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
  std::unordered_map<std::uint64_t, std::deque<std::shared_ptr<Job>>> jobs_;  // by slot; the first one runs
};

}  // namespace loci
