// SPDX-License-Identifier: Apache-2.0
// A disk store in memory, for tests: it keeps the contract of disk_store.h and can be told to be slow and to
// fail. Its contents belong to a FakeDisk, which outlives it as a disk outlives a server.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/mutex.h"
#include "loci/memory/disk/disk_store.h"

namespace loci {

struct FakeDisk {
  struct Slot {
    BlockEntry entry;
    std::vector<std::byte> bytes;
  };
  std::map<std::pair<std::uint32_t, SlotId>, Slot> slots;  // by group
  std::map<SlotId, BlockEntry> holes;
};

// Thread-safe. Reads and writes happen on one thread, reads first.
class FakeDiskStore final : public DiskStore {
 public:
  // Called on the store's thread before each layer is read, or an entry written (layer 0). It may wait. If it
  // returns an error the transfer ends with it.
  struct Faults {
    std::function<Status(const BlockRead&, std::uint32_t layer)> read;
    std::function<Status(const BlockEntry&)> write;
    std::function<void(const RecordChange&)> change;  // called by who calls change()
  };

  FakeDiskStore(FakeDisk& disk, std::vector<DiskGroup> groups, Faults faults = {})
      : disk_(disk), groups_(std::move(groups)), faults_(std::move(faults)), thread_([this] { run(); }) {}
  ~FakeDiskStore() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  const std::vector<DiskGroup>& groups() const override { return groups_; }
  std::uint32_t hole_records() const override { return 1024; }
  const std::vector<std::string>& notes() const override { return notes_; }
  const std::vector<std::string>& losses() const override { return notes_; }
  std::vector<std::uint32_t> room(std::uint64_t) const override {
    std::vector<std::uint32_t> slots;
    for (const DiskGroup& group : groups_) slots.push_back(group.slots);
    return slots;
  }
  const std::array<std::uint8_t, 32>& secret() const override { return secret_; }

  void recover(std::function<void(std::vector<RecoveredEntry>, bool last)> found) override {
    std::vector<RecoveredEntry> entries;
    for (const auto& [place, slot] : disk_.slots)
      entries.push_back({.entry = slot.entry, .group = place.first, .slot = place.second});
    for (const auto& [slot, entry] : disk_.holes)
      entries.push_back({.entry = entry, .hole = true, .slot = slot});
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return a.entry.depth < b.entry.depth; });
    post(Queue::kReads, [found = std::move(found), entries = std::move(entries)]() mutable {
      found(std::move(entries), true);
    });
  }

  void read(std::vector<BlockRead> items, std::uint32_t layers_at_once,
            std::shared_ptr<BlockReadSink> sink) override {
    post(Queue::kReads, [this, items = std::move(items), step = std::max(1u, layers_at_once),
                         sink = std::move(sink)] { read_all(items, step, *sink); });
  }

  void write(std::uint32_t group, SlotId slot, BlockEntry entry, std::vector<std::byte> bytes,
             std::function<void(Status)> done) override {
    LOCI_CHECK(slot.value < groups_.at(group).slots && bytes.size() == block_bytes(group), "a block's write");
    post(Queue::kWrites,
         [this, group, slot, entry, bytes = std::move(bytes), done = std::move(done)]() mutable {
           Status status = faults_.write ? faults_.write(entry) : Status();
           disk_.slots.erase({group, slot});
           ++(status.ok() ? stats_.writes_total : stats_.write_errors_total);
           if (status.ok()) disk_.slots[{group, slot}] = {entry, std::move(bytes)};
           done(std::move(status));
         });
  }

  void change(const RecordChange& change) override {
    if (faults_.change) faults_.change(change);
    post(Queue::kWrites, [this, change] {
      if (change.kind == RecordChange::Kind::kHole) disk_.holes[change.slot] = change.entry;
      if (change.kind == RecordChange::Kind::kForgetHole) disk_.holes.erase(change.slot);
      if (change.kind == RecordChange::Kind::kForget) disk_.slots.erase({change.group, change.slot});
      if (change.kind != RecordChange::Kind::kUsed) return;
      const auto found = disk_.slots.find({change.group, change.slot});
      if (found != disk_.slots.end() && found->second.entry.key == change.entry.key)
        found->second.entry.used_at = change.entry.used_at;
    });
  }

  DiskStoreStats stats() const override { return {.io = "memory"}; }
  std::int64_t oldest_used_at() const override { return 0; }
  void keep_locks() override {}

 private:
  using Task = std::function<void()>;
  enum class Queue : std::uint8_t { kReads, kWrites };

  // std::function needs a copyable object.
  template <class F>
  void post(Queue queue, F task) EXCLUDES(mutex_) {
    auto shared = std::make_shared<F>(std::move(task));
    {
      const MutexLock lock(mutex_);
      (queue == Queue::kReads ? reads_ : writes_).push_back([shared] { (*shared)(); });
    }
    changed_.notify_one();
  }

  void run() {
    MutexLock lock(mutex_);
    while (true) {
      changed_.wait(lock,
                    [&]() REQUIRES(mutex_) { return stopping_ || !reads_.empty() || !writes_.empty(); });
      std::deque<Task>& queue = reads_.empty() ? writes_ : reads_;
      if (queue.empty()) return;
      const Task task = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::uint64_t block_bytes(std::uint32_t group) const {
    return groups_[group].layers * groups_[group].layer_slice_bytes;
  }

  void read_all(const std::vector<BlockRead>& items, std::uint32_t step, BlockReadSink& sink) {
    std::vector<bool> over(items.size(), false);
    std::size_t left = items.size();
    for (std::uint32_t layer = 0; left > 0; layer += step) {
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (over[i]) continue;
        const std::optional<Status> end = read_layers(i, items[i], layer, step, sink);
        if (!end) continue;
        over[i] = true;
        --left;
        sink.done(i, *end);
      }
    }
  }

  // The item's end, if it has come.
  std::optional<Status> read_layers(std::size_t index, const BlockRead& item, std::uint32_t layer,
                                    std::uint32_t step, BlockReadSink& sink) {
    const DiskGroup& group = groups_.at(item.group);
    const std::uint32_t count = std::min(step, group.layers - layer);
    for (std::uint32_t i = 0; i < count; ++i) {
      Status status = faults_.read ? faults_.read(item, layer + i) : Status();
      if (!status.ok()) return status;
    }
    const auto found = disk_.slots.find({item.group, item.slot});
    if (found == disk_.slots.end() || found->second.entry.key != item.key)
      return data_loss("the slot holds another entry");
    sink.slices(index, layer, count,
                std::span(found->second.bytes)
                    .subspan(layer * group.layer_slice_bytes, count * group.layer_slice_bytes));
    if (layer + count < group.layers) return std::nullopt;
    return Status();
  }

  FakeDisk& disk_;
  const std::vector<DiskGroup> groups_;
  const Faults faults_;
  const std::vector<std::string> notes_;
  const std::array<std::uint8_t, 32> secret_{7};
  DiskStoreStats stats_;

  Mutex mutex_;
  Condition changed_;
  std::deque<Task> reads_ GUARDED_BY(mutex_);
  std::deque<Task> writes_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace loci
