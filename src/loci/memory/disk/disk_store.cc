// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_store.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/mutex.h"
#include "loci/base/units.h"
#include "loci/memory/disk/disk_queue.h"
#include "loci/memory/disk/disk_reads.h"
#include "loci/memory/disk/disk_recovery.h"
#include "loci/memory/disk/disk_writes.h"
#include "loci/memory/disk/open_disk_store.h"
#include "loci/memory/disk/slow_end.h"

namespace loci {
namespace {

constexpr std::size_t kRecoveredBatch = 1024;

// What the store and its recovering thread share, so that a thread which waits for a dead disk may outlive
// the store.
struct Common {
  Common(DiskFileSet opened, const DiskStoreOptions& options)
      : files(std::move(opened)), shares(options.shares), warn(options.warn) {
    for (const DiskGroup& group : files.layout.groups) {
      touched.emplace_back(group.slots);
      dates.emplace_back(group.slots);
    }
    touched.emplace_back(files.layout.holes);
  }

  DiskFileSet files;
  const std::vector<std::uint32_t> shares;
  const std::function<void(const std::string&)> warn;
  DiskCounters counters;
  Mutex mutex;
  // Slots that were written or forgotten since the store was opened: what recovery finds there is old.
  std::vector<std::vector<bool>> touched GUARDED_BY(mutex);  // by group; holes are the last
  // When what is in a slot was last used, as its record says; 0: nothing is there.
  std::vector<std::vector<std::int64_t>> dates GUARDED_BY(mutex);  // by group
  std::atomic<bool> stop{false};
  bool recovering GUARDED_BY(mutex) = false;
  Condition recovered;

  std::vector<bool>& touched_of(std::uint32_t group) REQUIRES(mutex) {
    return group == kHoleGroup ? touched.back() : touched[group];
  }
};

using Found = std::function<void(std::vector<RecoveredEntry>, bool last)>;

void hand_over(Common& common, RecoveryScan& scan, const Found& found) {
  std::vector<RecoveredEntry> batch;
  std::vector<std::uint32_t> order = recovery_order(scan.entries);
  date_by_youngest(scan.entries, order);
  // Of what is not handed over nobody knows: its record stays for the next start, or until its slot is used.
  if (scan.counts.unread > 0) order = joined_entries(scan.entries, order);
  for (const std::uint32_t index : order) {
    const RecoveredEntry& one = scan.entries[index];
    {
      const MutexLock lock(common.mutex);
      if (common.touched_of(one.hole ? kHoleGroup : one.group)[one.slot.value]) continue;
      if (!one.hole) common.dates[one.group][one.slot.value] = one.entry.used_at;
    }
    batch.push_back(one);
    if (batch.size() < kRecoveredBatch) continue;
    if (common.stop) return;
    found(std::exchange(batch, {}), false);
  }
  if (!common.stop) found(std::move(batch), true);
}

// Slots whose record leads to nothing (their write was cut short) give their space back, in long pieces.
void give_back_leftovers(Common& common, const RecoveryScan& scan) {
  const DiskLayout& layout = common.files.layout;
  for (std::uint32_t g = 0; g < layout.groups.size(); ++g) {
    std::vector<bool> kept(layout.groups[g].slots);
    for (const RecoveredEntry& one : scan.entries) {
      if (!one.hole && one.group == g) kept[one.slot.value] = true;
    }
    for (std::uint32_t directory = 0; directory < layout.directories; ++directory) {
      DiskFile& file = *common.files.directories[directory].slots[g];
      const std::uint64_t stride = layout.slot_stride(g), end = file.size_bytes();
      for (std::uint64_t at = file.next_data(0); at < end && !common.stop; at = file.next_data(at)) {
        const std::uint64_t row = at / stride, slot = row * layout.directories + directory;
        if (slot >= kept.size()) break;
        if (!kept[slot] && file.discard(row * stride, stride) != 0) return;  // nor would it be able to later
        at = (row + 1) * stride;
      }
    }
  }
}

void warn_of_unread(const Common& common, std::uint64_t records) {
  std::vector<std::string> folders;
  for (const DiskFileSet::Directory& one : common.files.directories) folders.push_back(one.folder->path());
  common.warn(fmt::format(
      "{} records in {} could not be read: what they name, and what follows it, is computed again "
      "until a start reads them; until then deleting a conversation does not delete it, "
      "but `loci forget` does",
      records, fmt::join(folders, ", ")));
}

void recover_all(const std::shared_ptr<Common> common, const Found found) {
  ::pthread_setname_np(::pthread_self(), "loci-recover");
  {
    RecoveryScan scan = scan_files(common->files, [&] { return common->stop.load(); });
    common->counters.damaged += scan.counts.damaged;
    common->counters.foreign += scan.counts.foreign;
    common->counters.read_errors += scan.counts.read_errors;
    // Records that could not be read may have slots.
    if (!common->stop && scan.counts.unread == 0) give_back_leftovers(*common, scan);
    if (!common->stop && scan.counts.unread > 0) warn_of_unread(*common, scan.counts.unread);
    hand_over(*common, scan, found);
  }
  const MutexLock lock(common->mutex);
  common->recovering = false;
  common->recovered.notify_all();
}

// What is said of a store's end.
struct StoreEnd {
  std::function<std::unique_ptr<SlowEnd>()> begins;
  std::function<void(std::uint64_t records)> leaves;  // that could not be cleared
};

class RealDiskStore final : public DiskStore {
 public:
  RealDiskStore(std::shared_ptr<Common> common, std::unique_ptr<IoEngine> engine, const Clock& clock,
                const DiskQueueOptions& options, StoreEnd end)
      : end_(std::move(end)),
        common_(std::move(common)),
        clock_(clock),
        answer_limit_(options.answer_limit),
        queue_(std::move(engine), clock, options),
        writer_(common_->files, common_->counters, queue_, clock, answer_limit_),
        thread_([this] { run(); }) {}

  ~RealDiskStore() override {
    slow_end_ = end_.begins();
    common_->stop = true;
    {
      const MutexLock lock(mutex_);
      closing_ = true;
    }
    queue_.wake();
    thread_.join();
    if (const std::uint64_t records = common_->counters.uncleared; records > 0) end_.leaves(records);
    if (!recoverer_.joinable()) return;
    MutexLock lock(common_->mutex);
    const bool ended =
        common_->recovered.wait_for(lock, std::chrono::nanoseconds(answer_limit_),
                                    [this]() REQUIRES(common_->mutex) { return !common_->recovering; });
    lock.unlock();
    if (ended) {
      recoverer_.join();
    } else {
      recoverer_.detach();  // it waits for a disk, and will find that it is to stop
    }
  }

  const std::vector<DiskGroup>& groups() const override { return common_->files.layout.groups; }
  std::uint32_t hole_records() const override { return common_->files.layout.holes; }
  const std::vector<std::string>& notes() const override { return common_->files.notes; }
  const std::vector<std::string>& losses() const override { return common_->files.losses; }
  std::vector<std::uint32_t> room(std::uint64_t bytes) const override {
    return slots_within(common_->files.layout, common_->shares, bytes);
  }
  const std::array<std::uint8_t, 32>& secret() const override { return common_->files.secret; }

  void recover(Found found) override {
    LOCI_CHECK(!recoverer_.joinable(), "recover() is called once");
    {
      const MutexLock lock(common_->mutex);
      common_->recovering = true;
    }
    recoverer_ = std::thread(recover_all, common_, std::move(found));
  }

  void read(std::vector<BlockRead> items, std::uint32_t layers_at_once,
            std::shared_ptr<BlockReadSink> sink) override {
    for (const BlockRead& item : items) check_slot(item.group, item.slot);
    post([this, items = std::move(items), layers_at_once, sink = std::move(sink)] {
      std::vector<std::uint8_t> gone;
      for (const BlockRead& item : items) gone.push_back(writer_.busy(item.group, item.slot) ? 1 : 0);
      push_reads(common_->files, common_->counters, queue_, items, gone, layers_at_once, sink);
    });
  }

  void write(std::uint32_t group, SlotId slot, BlockEntry entry, std::vector<std::byte> bytes,
             std::function<void(Status)> done) override {
    touch(group, slot, entry.used_at);
    const DiskGroup& shape = groups()[group];
    LOCI_CHECK(bytes.size() == shape.layers * shape.layer_slice_bytes, "an entry's bytes");
    auto one = std::make_shared<DiskWrite>(
        DiskWrite{group, slot, std::move(entry), std::move(bytes), std::move(done)});
    post([this, one] { writer_.write(std::move(*one)); });
  }

  void change(const RecordChange& change) override {
    if (change.kind == RecordChange::Kind::kUsed)
      date(change);
    else
      touch(change.kind == RecordChange::Kind::kForget ? change.group : kHoleGroup, change.slot, 0);
    post([this, change] { writer_.change(change); });
  }

  DiskStoreStats stats() const override {
    const DiskCounters& from = common_->counters;
    return {.io = queue_.engine(),
            .reads_total = from.reads,
            .read_bytes_total = from.read_bytes,
            .read_errors_total = from.read_errors,
            .writes_total = from.writes,
            .write_bytes_total = from.write_bytes,
            .write_errors_total = from.write_errors,
            .damaged_total = from.damaged,
            .foreign_total = from.foreign,
            .uncleared_records = from.uncleared};
  }

  // A disk may have millions of slots, and the mover waits for whoever holds the mutex.
  std::int64_t oldest_used_at() const override {
    constexpr std::size_t kDatesAtOnce = 16'384;
    std::int64_t oldest = 0;
    for (std::size_t group = 0; group < common_->files.layout.groups.size(); ++group) {
      const std::size_t slots = common_->files.layout.groups[group].slots;
      for (std::size_t begin = 0; begin < slots; begin += kDatesAtOnce) {
        const MutexLock lock(common_->mutex);
        const std::vector<std::int64_t>& dates = common_->dates[group];
        for (std::size_t i = begin; i < std::min(slots, begin + kDatesAtOnce); ++i) {
          if (dates[i] != 0 && (oldest == 0 || dates[i] < oldest)) oldest = dates[i];
        }
      }
    }
    return oldest;
  }

  void keep_locks() override {
    for (const DiskFileSet::Directory& one : common_->files.directories) {
      if (const std::string line = one.folder->keep_lock(); !line.empty()) common_->warn(line);
    }
  }

 private:
  void check_slot(std::uint32_t group, SlotId slot) const {
    const DiskLayout& layout = common_->files.layout;
    LOCI_CHECK(group == kHoleGroup || group < layout.groups.size(), "a group of the store");
    LOCI_CHECK(slot.value < (group == kHoleGroup ? layout.holes : layout.groups[group].slots),
               "a slot of the store");
  }

  void touch(std::uint32_t group, SlotId slot, std::int64_t used_at) {
    check_slot(group, slot);
    const MutexLock lock(common_->mutex);
    common_->touched_of(group)[slot.value] = true;
    if (group != kHoleGroup) common_->dates[group][slot.value] = used_at;
  }

  void date(const RecordChange& change) {
    check_slot(change.group, change.slot);
    const MutexLock lock(common_->mutex);
    std::int64_t& used_at = common_->dates[change.group][change.slot.value];
    if (used_at != 0) used_at = std::max(used_at, change.entry.used_at);
  }

  void post(std::function<void()> task) {
    {
      const MutexLock lock(mutex_);
      inbox_.push_back(std::move(task));
    }
    queue_.wake();
  }

  void run() {
    ::pthread_setname_np(::pthread_self(), "loci-disk");
    std::optional<Nanos> clear_until;  // once it closes
    while (true) {
      std::vector<std::function<void()>> tasks;
      bool closing = false;
      {
        const MutexLock lock(mutex_);
        tasks.swap(inbox_);
        closing = closing_;
      }
      for (const std::function<void()>& task : tasks) task();
      if (closing && !clear_until) {
        clear_until = clock_.now() + answer_limit_;
        writer_.hurry();
      }
      Nanos wait = std::min(kNanosPerSecond, writer_.clear_again());
      if (closing && tasks.empty() && queue_.idle()) {
        const Nanos left = *clear_until - clock_.now();
        if (common_->counters.uncleared == 0 || left <= 0) return;
        wait = std::min(wait, left);
      }
      queue_.poll(wait);
    }
  }

  const StoreEnd end_;
  std::unique_ptr<SlowEnd> slow_end_;  // null until the end, in which it outlives all that waits for a disk
  const std::shared_ptr<Common> common_;
  const Clock& clock_;
  const Nanos answer_limit_;
  DiskQueue queue_;    // the thread's
  DiskWriter writer_;  // the thread's
  Mutex mutex_;
  std::vector<std::function<void()>> inbox_ GUARDED_BY(mutex_);
  bool closing_ GUARDED_BY(mutex_) = false;
  std::thread recoverer_;
  std::thread thread_;
};

bool all_have_descriptors(const DiskFileSet& files) {
  return std::all_of(files.directories.begin(), files.directories.end(),
                     [](const auto& directory) { return directory.holes->descriptor() >= 0; });
}

Result<std::unique_ptr<IoEngine>> make_engine(const DiskStoreOptions& options, std::uint32_t depth,
                                              DiskFileSet& files) {
  const auto lanes = static_cast<std::uint32_t>(files.directories.size());
  if (options.io == "threads" || !all_have_descriptors(files)) return make_thread_engine(lanes);
  auto engine = make_uring_engine(depth);
  if (engine.ok()) return engine;
  if (options.io == "io_uring") {
    return invalid_argument(engine.status().message() + "; expected auto or threads", "disk_io");
  }
  files.notes.push_back(engine.status().message() + "; the disks are read by threads");
  return make_thread_engine(lanes);
}

}  // namespace

Result<std::unique_ptr<DiskStore>> open_disk_store(const DiskStoreOptions& options,
                                                   const MakeDiskFolder& make_folder, const Clock& clock) {
  if (options.io != "auto" && options.io != "io_uring" && options.io != "threads") {
    return invalid_argument(fmt::format("expected auto, io_uring or threads, found {}", options.io),
                            "disk_io");
  }
  LOCI_ASSIGN_OR_RETURN(DiskFileSet files, open_disk_files(options, make_folder));
  auto common = std::make_shared<Common>(std::move(files), options);
  const DiskLayout& layout = common->files.layout;
  DiskQueueOptions queue{.lanes = layout.directories,
                         .depth = std::max(options.queue_depth, layout.directories),
                         .buffer_bytes = kChunkBytesMax,
                         .answer_limit = options.answer_limit,
                         .bytes_per_second = options.bytes_per_second};
  for (std::uint32_t g = 0; g < layout.groups.size(); ++g) {
    queue.buffer_bytes = std::max<std::size_t>(queue.buffer_bytes, layout.pack_stride(g));
  }
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<IoEngine> engine, make_engine(options, queue.depth, common->files));
  std::vector<std::string> folders;
  for (const DiskDirectory& directory : options.directories) folders.push_back(directory.path);
  const auto say = [warn = options.warn, limit = options.answer_limit, folders] {
    warn(
        fmt::format("stopping waits for reads and writes that the disk of {} does not answer or refuses, for "
                    "{} at most",
                    fmt::join(folders, ", "), format_duration(limit)));
  };
  const StoreEnd end{
      .begins = [say, limit = options.end_limit] { return std::make_unique<SlowEnd>(limit, say); },
      .leaves =
          [warn = options.warn, folders](std::uint64_t records) {
            warn(fmt::format(
                "{} records of deleted state in {} could not be cleared, because the disk refused or did "
                "not answer: the next start may find that state again, unless `loci forget` removes it",
                records, fmt::join(folders, ", ")));
          }};
  return std::unique_ptr<DiskStore>(
      std::make_unique<RealDiskStore>(std::move(common), std::move(engine), clock, queue, end));
}

Result<std::unique_ptr<DiskStore>> DiskStore::open(const DiskStoreOptions& options) {
  static const SystemClock clock;
  return open_disk_store(options, make_disk_folder, clock);
}

}  // namespace loci
