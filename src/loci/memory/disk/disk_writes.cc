// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_writes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/durable_file.h"
#include "loci/memory/disk/disk_format.h"
#include "loci/memory/disk/disk_reads.h"

namespace loci {

class DiskWriter::Job : public DiskOperationOwner, public std::enable_shared_from_this<Job> {
 public:
  Job(DiskWriter& writer, std::uint32_t group, SlotId slot) : writer_(writer), group_(group), slot_(slot) {}
  virtual void begin() = 0;
  // What is in the slot is gone from now on.
  virtual bool replaces() const { return true; }

 protected:
  // Empty where all bytes were written.
  Status status_of(std::int64_t result, std::uint64_t bytes) const {
    if (result == static_cast<std::int64_t>(bytes)) return {};
    const int error = result < 0 ? static_cast<int>(-result) : EIO;
    const DiskFileSet& files = writer_.files_;
    const std::string& path = files.directories[files.layout.directory_of(slot_)].folder->path();
    return {code_of_failed_write(error), error == ETIME ? fmt::format("{}: the disk did not answer", path)
                                                        : fmt::format("{}: {}", path, errno_text(error))};
  }

  std::uint64_t name() const { return name_of(group_, slot_); }
  // Zeros are about to be written.
  void zeros_begin() {
    if (replaces()) writer_.clears_.begin(name());
  }
  // A record is about to be written.
  void record_begins() {
    record_begun_ = true;
    if (replaces()) writer_.clears_.begin(name());
  }
  // The write of a record, or of zeros, has ended. Where it failed, the slot's old record may still be there,
  // or this one, whose failure has been told.
  void record_ended(std::int64_t result, bool written) {
    if (record_begun_ && result == -ETIME) writer_.clears_.give_up(name());
    if (!replaces()) return;
    if (written) return writer_.clears_.settle(name());
    writer_.clears_.replace(name());
    writer_.clears_.owe(name(), writer_.clock_.now());
  }
  // The disk has answered after all.
  void record_answered() { writer_.clears_.answer(name(), writer_.clock_.now()); }

  DiskWriter& writer_;
  const std::uint32_t group_;
  const SlotId slot_;

 private:
  bool record_begun_ = false;
};

// One record: a hole's, or zeros.
class DiskWriter::RecordJob final : public Job {
 public:
  RecordJob(DiskWriter& writer, std::uint32_t group, SlotId slot, std::optional<BlockEntry> entry)
      : Job(writer, group, slot), entry_(std::move(entry)) {}

  void begin() override { writer_.push_record(shared_from_this(), 0, group_, slot_); }

  bool prepare(std::uint32_t step, std::span<std::byte> data) override {
    if (step == kDiscard) return true;
    if (entry_.has_value()) {
      record_begins();
      encode_record(writer_.files_.record_of(group_, slot_.value), *entry_, {}, data);
    } else {
      zeros_begin();
      std::memset(data.data(), 0, data.size());
    }
    return true;
  }

  void ended(std::uint32_t step, std::int64_t result, DiskBuffer) override {
    if (step == kDiscard) {
      // (What no file system gives back it will not give back later either.)
      record_ended(result, result >= 0 || never_discards(result));
      return writer_.finished(name());
    }
    const std::uint64_t bytes = writer_.files_.record_place(group_, slot_).bytes;
    const bool written = status_of(result, bytes).ok();
    if (!written) writer_.counters_.write_errors.fetch_add(1, std::memory_order_relaxed);
    // What is forgotten gives its space back, to the other form and other models too: until it has, the slot
    // owes a clear. (Not where a file system cannot.)
    if (group_ == kHoleGroup || entry_.has_value() || !written) {
      record_ended(result, written);
      return writer_.finished(name());
    }
    const DiskFileSet::Place place = writer_.files_.slot_place(group_, slot_);
    writer_.queue_.push({.owner = shared_from_this(),
                         .step = kDiscard,
                         .lane = place.directory,
                         .write = true,
                         .discard = true,
                         .file = place.file,
                         .offset = place.offset,
                         .bytes = place.bytes});
  }

  void answered_late(std::uint32_t) override {
    if (entry_.has_value()) record_answered();
  }

 private:
  static constexpr std::uint32_t kDiscard = 1;

  const std::optional<BlockEntry> entry_;
};

// A new date: the record is read, changed and written. One that is not the entry's any more stays as it is.
class DiskWriter::DateJob final : public Job {
 public:
  DateJob(DiskWriter& writer, std::uint32_t group, SlotId slot, const BlockEntry& entry)
      : Job(writer, group, slot), key_(entry.key), used_at_(entry.used_at) {}

  void begin() override { writer_.push_record_read(shared_from_this(), kRead, group_, slot_); }
  bool replaces() const override { return false; }

  bool prepare(std::uint32_t step, std::span<std::byte> data) override {
    if (step == kRead) return true;
    record_begins();
    std::memcpy(data.data(), record_.data(), record_.size());
    return true;
  }

  void ended(std::uint32_t step, std::int64_t result, DiskBuffer data) override {
    const std::uint64_t bytes = writer_.files_.record_place(group_, slot_).bytes;
    const bool moved = status_of(result, bytes).ok();
    if (step == kWrite) record_ended(result, moved);
    if (!moved) {
      DiskCounters& counters = writer_.counters_;
      (step == kRead ? counters.read_errors : counters.write_errors).fetch_add(1, std::memory_order_relaxed);
    }
    if (step == kRead && moved && take(data.bytes().first(bytes)))
      writer_.push_record(shared_from_this(), kWrite, group_, slot_);
    else
      writer_.finished(name());
  }

  void answered_late(std::uint32_t) override { record_answered(); }

 private:
  static constexpr std::uint32_t kRead = 0, kWrite = 1;

  bool take(std::span<const std::byte> record) {
    const RecordPlace place = writer_.files_.record_of(group_, slot_.value);
    BlockEntry found;
    const RecordState state =
        decode_record(place, writer_.files_.layout.groups[group_].layers, record, found);
    if (state != RecordState::kValid || found.key != key_ || found.used_at >= used_at_) return false;
    record_.assign(record.begin(), record.end());
    date_record(place, used_at_, record_);
    return true;
  }

  const ChainKey key_;
  const std::int64_t used_at_;
  std::vector<std::byte> record_;
};

// An entry: its old header, then its slices, then its header.
class DiskWriter::EntryJob final : public Job {
 public:
  EntryJob(DiskWriter& writer, DiskWrite write)
      : Job(writer, write.group, write.slot),
        write_(std::move(write)),
        layers_(writer.files_.layout.groups[group_].layers),
        layers_at_once_(layers_of_chunk(writer.files_.layout, group_, layers_)),
        chunks_((layers_ + layers_at_once_ - 1) / layers_at_once_) {}

  void begin() override { writer_.push_record(shared_from_this(), 0, group_, slot_); }

  bool prepare(std::uint32_t step, std::span<std::byte> data) override {
    if (!status_.ok()) return false;
    if (step == 0) {
      zeros_begin();
      std::memset(data.data(), 0, data.size());
    } else if (step <= chunks_) {
      fill(step, data);
    } else {
      record_begins();
      encode_record(writer_.files_.record_of(group_, slot_.value), write_.entry, checksums_, data);
    }
    return true;
  }

  void ended(std::uint32_t step, std::int64_t result, DiskBuffer) override {
    const DiskFileSet& files = writer_.files_;
    const std::uint64_t bytes = is_chunk(step)
                                    ? files.slice_place(group_, slot_, first_of(step), count_of(step)).bytes
                                    : files.record_place(group_, slot_).bytes;
    Status status = status_of(result, bytes);
    if (!is_chunk(step)) record_ended(result, status.ok());
    if (!status.ok()) {
      if (status_.ok()) status_ = std::move(status);
    } else if (is_chunk(step)) {
      writer_.counters_.write_bytes.fetch_add(bytes, std::memory_order_relaxed);
    }
    if (!status_.ok() || step > chunks_) return finish();
    if (step == 0) {
      push_slices();
    } else if (++written_ == chunks_) {
      writer_.push_record(shared_from_this(), chunks_ + 1, group_, slot_);
    }
  }

  void answered_late(std::uint32_t step) override {
    if (step > chunks_) record_answered();
  }

 private:
  bool is_chunk(std::uint32_t step) const { return step > 0 && step <= chunks_; }
  std::uint32_t first_of(std::uint32_t step) const { return (step - 1) * layers_at_once_; }
  std::uint32_t count_of(std::uint32_t step) const {
    return std::min(layers_at_once_, layers_ - first_of(step));
  }

  void push_slices() {
    checksums_.resize(layers_);
    for (std::uint32_t step = 1; step <= chunks_; ++step) {
      const DiskFileSet::Place place =
          writer_.files_.slice_place(group_, slot_, first_of(step), count_of(step));
      writer_.queue_.push({.owner = shared_from_this(),
                           .step = step,
                           .lane = place.directory,
                           .write = true,
                           .file = place.file,
                           .offset = place.offset,
                           .bytes = place.bytes});
    }
  }

  void fill(std::uint32_t step, std::span<std::byte> data) {
    const DiskLayout& layout = writer_.files_.layout;
    const std::uint64_t size = layout.groups[group_].layer_slice_bytes;
    const std::uint64_t begin = layout.slice_offset(group_, first_of(step));
    std::uint64_t end = 0;  // of what is filled
    for (std::uint32_t i = 0; i < count_of(step); ++i) {
      const std::uint32_t layer = first_of(step) + i;
      const std::span<const std::byte> slice(write_.bytes.data() + layer * size, size);
      checksums_[layer] = slice_checksum(slot_.value, layer, slice);
      const std::uint64_t at = layout.slice_offset(group_, layer) - begin;
      std::memset(data.data() + end, 0, at - end);
      std::memcpy(data.data() + at, slice.data(), size);
      end = at + size;
    }
    std::memset(data.data() + end, 0, data.size() - end);
  }

  // Once; chunks that are still in flight after a failure find the job finished.
  void finish() {
    if (finished_) return;
    finished_ = true;
    writer_.counters_.writes.fetch_add(1, std::memory_order_relaxed);
    if (!status_.ok()) writer_.counters_.write_errors.fetch_add(1, std::memory_order_relaxed);
    write_.bytes = {};
    const std::function<void(Status)> done = std::move(write_.done);
    const Status status = status_;
    writer_.finished(name());
    done(status);
  }

  DiskWrite write_;
  const std::uint32_t layers_, layers_at_once_, chunks_;
  std::vector<std::uint64_t> checksums_;
  std::uint32_t written_ = 0;
  Status status_;
  bool finished_ = false;
};

DiskWriter::DiskWriter(const DiskFileSet& files, DiskCounters& counters, DiskQueue& queue, const Clock& clock,
                       Nanos answer_limit)
    : files_(files),
      counters_(counters),
      queue_(queue),
      clock_(clock),
      clears_(
          files.layout.directories,
          [&files](std::uint64_t name) {
            return files.layout.directory_of(SlotId(static_cast<std::uint32_t>(name)));
          },
          answer_limit, counters) {}
DiskWriter::~DiskWriter() = default;

void DiskWriter::add(std::uint32_t group, SlotId slot, std::shared_ptr<Job> job) {
  if (job->replaces()) clears_.replace(name_of(group, slot));
  std::deque<std::shared_ptr<Job>>& jobs = jobs_[name_of(group, slot)];
  jobs.push_back(job);
  if (jobs.size() == 1) job->begin();
}

void DiskWriter::finished(std::uint64_t name) {
  const auto found = jobs_.find(name);
  found->second.pop_front();
  if (found->second.empty()) {
    jobs_.erase(found);
  } else {
    const std::shared_ptr<Job> next = found->second.front();
    next->begin();
  }
}

DiskOperation DiskWriter::record_operation(const std::shared_ptr<Job>& job, std::uint32_t step,
                                           std::uint32_t group, SlotId slot) const {
  const DiskFileSet::Place place = files_.record_place(group, slot);
  return {.owner = job,
          .step = step,
          .lane = place.directory,
          .file = place.file,
          .offset = place.offset,
          .bytes = place.bytes};
}

void DiskWriter::push_record_read(const std::shared_ptr<Job>& job, std::uint32_t step, std::uint32_t group,
                                  SlotId slot) {
  queue_.push(record_operation(job, step, group, slot));
}

void DiskWriter::push_record(const std::shared_ptr<Job>& job, std::uint32_t step, std::uint32_t group,
                             SlotId slot) {
  DiskOperation write = record_operation(job, step, group, slot);
  write.write = true;
  queue_.push(std::move(write));
}

void DiskWriter::write(DiskWrite write) {
  const std::uint32_t group = write.group;
  const SlotId slot = write.slot;
  add(group, slot, std::make_shared<EntryJob>(*this, std::move(write)));
}

void DiskWriter::change(const RecordChange& change) {
  if (change.kind == RecordChange::Kind::kUsed) {
    return add(change.group, change.slot,
               std::make_shared<DateJob>(*this, change.group, change.slot, change.entry));
  }
  const bool hole = change.kind != RecordChange::Kind::kForget;
  const std::uint32_t group = hole ? kHoleGroup : change.group;
  add(group, change.slot,
      std::make_shared<RecordJob>(
          *this, group, change.slot,
          change.kind == RecordChange::Kind::kHole ? std::optional(change.entry) : std::nullopt));
}

Nanos DiskWriter::clear_again() {
  const Nanos now = clock_.now();
  for (const std::uint64_t name : clears_.due(now)) {
    if (is_replaced(name)) {
      clears_.postpone(name, now);
      continue;
    }
    const auto group = static_cast<std::uint32_t>(name >> 32);
    const SlotId slot(static_cast<std::uint32_t>(name));
    add(group, slot, std::make_shared<RecordJob>(*this, group, slot, std::nullopt));
  }
  return clears_.wait(now);
}

bool DiskWriter::busy(std::uint32_t group, SlotId slot) const {
  const std::uint64_t name = name_of(group, slot);
  return clears_.owes(name) || is_replaced(name);
}

bool DiskWriter::is_replaced(std::uint64_t name) const {
  const auto found = jobs_.find(name);
  return found != jobs_.end() && std::any_of(found->second.begin(), found->second.end(),
                                             [](const std::shared_ptr<Job>& job) { return job->replaces(); });
}

}  // namespace loci
