// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_store.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "loci/base/folder_testing.h"
#include "loci/memory/disk/disk_io.h"
#include "loci/memory/disk/disk_layout.h"
#include "loci/memory/disk/disk_testing.h"

namespace loci {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// What every engine must do.
class DiskStoreContract : public ::testing::TestWithParam<std::string> {
 protected:
  DiskStoreOptions options(std::size_t directories = 1) const {
    DiskStoreOptions all;
    for (std::size_t i = 0; i < directories; ++i) {
      all.directories.push_back({folder_.file("state" + std::to_string(i)), 4 * kMiB});
    }
    // A group whose slices are padded, and one whose are not.
    all.groups = {{.layers = 10, .layer_slice_bytes = 2000}, {.layers = 3, .layer_slice_bytes = 8192}};
    all.shares = {2, 1};
    all.model_fingerprint.fill(7);
    all.io = GetParam();
    return all;
  }
  std::unique_ptr<DiskStore> open(const DiskStoreOptions& with) const {
    auto store = DiskStore::open(with);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return std::move(store).value();
  }
  std::unique_ptr<DiskStore> open() const { return open(options()); }

  TestFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Engines, DiskStoreContract, ::testing::Values("auto", "threads"),
                         [](const auto& test) { return test.param; });

void expect_entry(DiskStore& store, std::uint32_t group, SlotId slot, std::uint64_t seed,
                  std::uint32_t layers_at_once = 0) {
  const auto item = read_one(store, group, slot, test_key(seed), layers_at_once);
  ASSERT_TRUE(item.status->ok()) << item.status->to_string();
  EXPECT_EQ(item.layers, store.groups()[group].layers);
  EXPECT_EQ(item.bytes, test_bytes(seed, store.groups()[group]));
}

TEST_P(DiskStoreContract, ReadsWhatWasWritten) {
  const auto store = open();
  // Containers refuse io_uring.
  const bool uring = GetParam() != "threads" && make_uring_engine(1).ok();
  EXPECT_EQ(store->stats().io, uring ? "io_uring" : "threads");
  for (std::uint32_t group = 0; group < 2; ++group) {
    for (const std::uint32_t slot : {0u, 1u, store->groups()[group].slots - 1}) {
      const std::uint64_t seed = group * 1000 + slot;
      ASSERT_TRUE(
          write_one(*store, group, SlotId(slot), test_entry(seed), test_bytes(seed, store->groups()[group]))
              .ok());
      for (const std::uint32_t at_once : {0u, 1u, 2u, 100u})
        expect_entry(*store, group, SlotId(slot), seed, at_once);
    }
  }
  EXPECT_EQ(store->stats().writes_total, 6u);
  EXPECT_EQ(store->stats().reads_total, 24u);
  EXPECT_EQ(store->stats().damaged_total, 0u);
}

TEST_P(DiskStoreContract, ANewStoreIsEmpty) {
  const auto store = open();
  EXPECT_TRUE(recover_all(*store).empty());
  EXPECT_EQ(read_one(*store, 0, SlotId(0), test_key(1)).status->code(), StatusCode::kDataLoss);
  EXPECT_EQ(store->stats().damaged_total, 0u);
}

TEST_P(DiskStoreContract, DividesTheSpaceByShares) {
  const auto store = open();
  const double first = store->groups()[0].slots, second = store->groups()[1].slots;
  EXPECT_NEAR(first / second, 2, 0.05);
  EXPECT_EQ(store->hole_records(), first + second);
  // 2 slots of 5 packs of 4096 and one of 3 * 8192, with a header and a hole for each.
  EXPECT_NEAR(second, (4 * kMiB - 65536) / (2 * 5 * 4096. + 3 * 8192 + 6 * 512), 2);
}

TEST_P(DiskStoreContract, KeepsToItsSpaceAndToItsOwner) {
  for (const std::uint64_t bytes : {200'000ull, 1'000'000ull, 3'333'333ull}) {
    for (std::size_t directories = 1; directories <= 3; ++directories) {
      DiskStoreOptions with = options(directories);
      for (DiskDirectory& one : with.directories) one.bytes = bytes;
      with.directories.back().bytes += 50'000;  // the smallest one counts
      open(with).reset();
      for (const DiskDirectory& one : with.directories) {
        std::uint64_t size = 0, blocks = 0;
        for (const auto& file : std::filesystem::directory_iterator(one.path)) {
          struct stat facts{};
          ASSERT_EQ(::stat(file.path().c_str(), &facts), 0);
          EXPECT_EQ(facts.st_mode & 0777, 0600u) << file.path();
          size += static_cast<std::uint64_t>(facts.st_size);
          blocks += static_cast<std::uint64_t>(facts.st_blocks) * 512;
        }
        EXPECT_LE(size, bytes);
        EXPECT_GE(size, bytes - bytes / 10 - 100'000);
        EXPECT_LE(blocks, 64u << 10) << "what is not written takes no space";
        struct stat facts{};
        ASSERT_EQ(::stat(one.path.c_str(), &facts), 0);
        EXPECT_EQ(facts.st_mode & 0777, 0700u);
      }
    }
  }
}

TEST_P(DiskStoreContract, RefusesASpaceWithoutRoomForABlock) {
  DiskStoreOptions with = options();
  with.directories[0].bytes = 100'000;
  const Status status = DiskStore::open(with).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "disk");
}

TEST_P(DiskStoreContract, HandsOverWhatItHoldsParentsFirst) {
  constexpr std::uint32_t kEntries = 40;
  std::array<std::uint8_t, 32> secret{};
  {
    const auto store = open(options(3));
    secret = store->secret();
    for (std::uint32_t i = 0; i < kEntries; ++i) {
      ASSERT_TRUE(
          write_one(*store, 0, SlotId(i), test_entry(i, kEntries - i), test_bytes(i, store->groups()[0]))
              .ok());
    }
    ASSERT_TRUE(write_one(*store, 1, SlotId(4), test_entry(3, 37), test_bytes(3, store->groups()[1])).ok());
    store->change({.kind = RecordChange::Kind::kHole, .slot = SlotId(5), .entry = test_entry(900, 7)});
    store->change({.kind = RecordChange::Kind::kHole, .slot = SlotId(6), .entry = test_entry(901, 8)});
    store->change({.kind = RecordChange::Kind::kForgetHole, .slot = SlotId(6)});
    store->change({.kind = RecordChange::Kind::kForget, .group = 0, .slot = SlotId(11)});
  }
  const auto store = open(options(3));
  EXPECT_EQ(store->secret(), secret);
  EXPECT_TRUE(store->notes().empty());
  const std::vector<RecoveredEntry> found = recover_all(*store);
  ASSERT_EQ(found.size(), kEntries + 1);
  EXPECT_TRUE(std::is_sorted(found.begin(), found.end(),
                             [](const auto& a, const auto& b) { return a.entry.depth < b.entry.depth; }));
  for (const RecoveredEntry& one : found) {
    if (one.hole) {
      EXPECT_EQ(one.slot, SlotId(5));
      EXPECT_EQ(one.entry, test_entry(900, 7));
    } else {
      const std::uint32_t seed = one.group == 1 ? 3 : one.slot.value;
      EXPECT_NE(seed, 11u);
      EXPECT_EQ(one.entry, test_entry(seed, kEntries - seed));
      expect_entry(*store, one.group, one.slot, seed);
    }
  }
}

// The older ones too, after it: whoever has taken one over forgets the others.
TEST_P(DiskStoreContract, HandsOverTheNewestOfThoseWithOneKeyFirst) {
  {
    const auto store = open();
    BlockEntry entry = test_entry(5);
    for (const std::uint32_t slot : {3u, 9u, 6u}) {
      entry.used_at = slot;
      ASSERT_TRUE(write_one(*store, 0, SlotId(slot), entry, test_bytes(slot, store->groups()[0])).ok());
    }
    ASSERT_TRUE(write_one(*store, 1, SlotId(0), entry, test_bytes(1, store->groups()[1])).ok());
  }
  const auto found = recover_all(*open());
  std::vector<SlotId> slots;
  for (const RecoveredEntry& one : found) {
    if (one.group == 0) slots.push_back(one.slot);
  }
  ASSERT_EQ(found.size(), 4u);
  ASSERT_EQ(slots.size(), 3u);
  EXPECT_EQ(slots[0], SlotId(9));
}

TEST_P(DiskStoreContract, AUseDatesARecordAgain) {
  const auto used = [](std::uint32_t slot, std::uint64_t seed, std::int64_t at) {
    RecordChange change{.kind = RecordChange::Kind::kUsed, .group = 0, .slot = SlotId(slot), .entry = {}};
    change.entry.key = test_key(seed);
    change.entry.used_at = at;
    return change;
  };
  {
    const auto store = open();
    for (const std::uint32_t seed : {10u, 20u, 30u}) {
      ASSERT_TRUE(
          write_one(*store, 0, SlotId(seed), test_entry(seed), test_bytes(seed, store->groups()[0])).ok());
    }
    store->change(used(10, 10, 5'000));
    expect_entry(*store, 0, SlotId(10), 10);  // it is there all the time
    store->change(used(20, 21, 5'000));       // another block has the slot by now
    store->change(used(40, 40, 5'000));       // nothing is there
    store->change(used(30, 30, 7));           // older than what the record says
  }
  const auto store = open();
  const auto found = recover_all(*store);
  ASSERT_EQ(found.size(), 3u);
  for (const RecoveredEntry& one : found) {
    EXPECT_EQ(one.entry.used_at, one.slot == SlotId(10) ? 5'000 : one.slot.value);
    expect_entry(*store, 0, one.slot, one.slot.value);
  }
  EXPECT_EQ(store->stats().damaged_total, 0u);
}

TEST_P(DiskStoreContract, ABlockIsAsYoungAsTheYoungestBelowIt) {
  // A root's block, a hole below it, a gate's block, one more; and beside them one that nobody used for long.
  const auto entry = [](std::uint64_t seed, std::uint64_t parent, std::uint32_t depth, ParentKind kind,
                        std::int64_t used_at) {
    BlockEntry out = test_entry(seed, depth);
    out.parent = test_key(parent);
    out.parent_kind = kind;
    out.above = kind == ParentKind::kGate ? test_key(parent) : ChainKey{};
    if (kind == ParentKind::kGate) out.parent = test_key(parent + 500);
    out.used_at = used_at;
    return out;
  };
  {
    const auto store = open();
    const auto write = [&](std::uint32_t slot, const BlockEntry& one) {
      ASSERT_TRUE(write_one(*store, 0, SlotId(slot), one, test_bytes(slot, store->groups()[0])).ok());
    };
    write(1, entry(1, 99, 1, ParentKind::kRoot, 10));
    store->change({.kind = RecordChange::Kind::kHole,
                   .slot = SlotId(0),
                   .entry = entry(2, 1, 2, ParentKind::kBlock, 20)});
    write(3, entry(3, 2, 3, ParentKind::kGate, 1'000));
    write(4, entry(4, 3, 4, ParentKind::kBlock, 30));
    write(5, entry(5, 1, 2, ParentKind::kBlock, 40));
  }
  std::map<ChainKey, std::int64_t> dates;
  for (const RecoveredEntry& one : recover_all(*open())) dates[one.entry.key] = one.entry.used_at;
  ASSERT_EQ(dates.size(), 5u);
  for (const std::uint64_t seed : {1, 2, 3}) EXPECT_EQ(dates[test_key(seed)], 1'000) << seed;
  EXPECT_EQ(dates[test_key(4)], 30);
  EXPECT_EQ(dates[test_key(5)], 40);
}

TEST_P(DiskStoreContract, ASlotIsGoneFromTheCallThatWritesOrForgetsIt) {
  const auto store = open();
  const DiskGroup group = store->groups()[0];
  ASSERT_TRUE(write_one(*store, 0, SlotId(2), test_entry(1), test_bytes(1, group)).ok());
  auto second = write_later(*store, 0, SlotId(2), test_entry(2), test_bytes(2, group));
  EXPECT_EQ(read_one(*store, 0, SlotId(2), test_key(1)).status->code(), StatusCode::kDataLoss);
  ASSERT_TRUE(second.get().ok());
  expect_entry(*store, 0, SlotId(2), 2);
  store->change({.kind = RecordChange::Kind::kForget, .group = 0, .slot = SlotId(2)});
  EXPECT_EQ(read_one(*store, 0, SlotId(2), test_key(2)).status->code(), StatusCode::kDataLoss);
  // Calls for one slot are carried out in their order.
  auto third = write_later(*store, 0, SlotId(2), test_entry(3), test_bytes(3, group));
  auto fourth = write_later(*store, 0, SlotId(2), test_entry(4), test_bytes(4, group));
  ASSERT_TRUE(third.get().ok());
  ASSERT_TRUE(fourth.get().ok());
  expect_entry(*store, 0, SlotId(2), 4);
  EXPECT_EQ(store->stats().damaged_total, 0u);
}

TEST_P(DiskStoreContract, BringsTheFirstLayersOfAllFirst) {
  DiskStoreOptions with = options();
  with.queue_depth = 1;  // so that the disk answers in order
  with.groups = {{.layers = 5, .layer_slice_bytes = 4096}, {.layers = 3, .layer_slice_bytes = 8192}};
  const auto store = open(with);
  std::vector<BlockRead> items;
  for (std::uint32_t i = 0; i < 6; ++i) {
    const std::uint32_t group = i % 2;
    ASSERT_TRUE(
        write_one(*store, group, SlotId(i), test_entry(i), test_bytes(i, store->groups()[group])).ok());
    items.push_back({group, SlotId(i), test_key(i)});
  }
  const auto sink = std::make_shared<CollectingSink>(items.size());
  store->read(items, 1, sink);
  for (const auto& item : sink->wait()) EXPECT_TRUE(item.status->ok());
  EXPECT_TRUE(std::is_sorted(sink->order().begin(), sink->order().end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; }));
}

// Nobody waits for them any more: the disk is for others.
TEST_P(DiskStoreContract, WhatNobodyWaitsForIsNotReadToItsEnd) {
  class Unwanted final : public BlockReadSink {
   public:
    explicit Unwanted(std::size_t items) : left_(items) {}
    void slices(std::size_t, std::uint32_t, std::uint32_t, std::span<const std::byte>) override {
      is_over_ = true;
    }
    bool wanted(std::size_t) override { return !is_over_; }
    void done(std::size_t, Status) override {
      if (--left_ == 0) all_.set_value();
    }
    void wait() { all_.get_future().wait(); }

   private:
    std::atomic<bool> is_over_ = false;
    std::atomic<std::size_t> left_;
    std::promise<void> all_;
  };
  DiskStoreOptions with = options();
  with.queue_depth = 1;  // so that the disk answers in order
  with.groups = {{.layers = 8, .layer_slice_bytes = 4096}, {.layers = 3, .layer_slice_bytes = 8192}};
  const auto store = open(with);
  std::vector<BlockRead> items;
  for (std::uint32_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(write_one(*store, 0, SlotId(i), test_entry(i), test_bytes(i, store->groups()[0])).ok());
    items.push_back({0, SlotId(i), test_key(i)});
  }
  const std::uint64_t before = store->stats().read_bytes_total;
  const auto sink = std::make_shared<Unwanted>(items.size());
  store->read(items, 1, sink);
  sink->wait();
  EXPECT_LE(store->stats().read_bytes_total - before, 6 * 4096u + 3 * 4096u)
      << "headers, and the first layers";
  expect_entry(*store, 0, SlotId(3), 3);
}

TEST_P(DiskStoreContract, ReadsWithManyInFlightThroughFewBuffers) {
  DiskStoreOptions with = options(2);
  with.queue_depth = 4;
  const auto store = open(with);
  const std::uint32_t slots = std::min(60u, store->groups()[0].slots);
  std::vector<BlockRead> items;
  std::vector<std::future<Status>> writes;
  for (std::uint32_t i = 0; i < slots; ++i) {
    writes.push_back(write_later(*store, 0, SlotId(i), test_entry(i), test_bytes(i, store->groups()[0])));
    items.push_back({0, SlotId(i), test_key(i % 5 == 4 ? 5000 : i)});
  }
  for (auto& write : writes) ASSERT_TRUE(write.get().ok());
  const auto sink = std::make_shared<CollectingSink>(items.size());
  const auto again = std::make_shared<CollectingSink>(items.size());
  store->read(items, 1, sink);
  store->read(items, 0, again);
  for (const auto& all : {sink, again}) {
    for (std::uint32_t i = 0; i < slots; ++i) {
      const auto& item = all->wait()[i];
      EXPECT_EQ(item.status->code(), i % 5 == 4 ? StatusCode::kDataLoss : StatusCode::kOk);
      if (i % 5 != 4) {
        EXPECT_EQ(item.bytes, test_bytes(i, store->groups()[0]));
      }
    }
  }
}

// Space of what is forgotten is another model's to take; and nobody finds it on the disk.
TEST_P(DiskStoreContract, WhatIsForgottenGivesItsSpaceBack) {
  const auto allocated = [&] {
    struct stat facts{};
    EXPECT_EQ(::stat((options().directories[0].path + "/group-0.slots").c_str(), &facts), 0);
    return static_cast<std::uint64_t>(facts.st_blocks) * 512;
  };
  const auto store = open();
  const DiskGroup group = store->groups()[0];
  for (const std::uint32_t slot : {0u, 1u, 2u})
    ASSERT_TRUE(write_one(*store, 0, SlotId(slot), test_entry(slot + 5), test_bytes(slot + 5, group)).ok());
  const std::uint64_t slot_bytes = divide_space(options()).value().slot_stride(0);
  EXPECT_EQ(allocated(), 3 * slot_bytes);
  EXPECT_EQ(store->oldest_used_at(), 5);
  store->change({.kind = RecordChange::Kind::kForget, .group = 0, .slot = SlotId(0)});
  // Calls for one slot are carried out in their order.
  ASSERT_TRUE(write_one(*store, 0, SlotId(0), test_entry(9), test_bytes(9, group)).ok());
  expect_entry(*store, 0, SlotId(0), 9);
  EXPECT_EQ(store->oldest_used_at(), 6);
  store->change({.kind = RecordChange::Kind::kForget, .group = 0, .slot = SlotId(1)});
  while (read_one(*store, 0, SlotId(1), test_key(6)).status->ok() || allocated() > 2 * slot_bytes) {
    std::this_thread::yield();
  }
  expect_entry(*store, 0, SlotId(2), 7);
  EXPECT_EQ(store->room(4 * kMiB)[0], group.slots);
  EXPECT_EQ(store->room(0)[0], 0u);
}

TEST_P(DiskStoreContract, RefusesASecondUser) {
  const auto store = open(options(2));
  DiskStoreOptions other = options(2);
  other.directories.erase(other.directories.begin());
  const Status status = DiskStore::open(other).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.field(), "disk");
  EXPECT_NE(status.message().find(other.directories[0].path), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("process " + std::to_string(::getpid())), std::string::npos);
}

TEST_P(DiskStoreContract, ReplacesFilesThatDoNotFit) {
  const auto fill = [&](const DiskStoreOptions& with) {
    const auto store = open(with);
    EXPECT_TRUE(write_one(*store, 0, SlotId(0), test_entry(1), test_bytes(1, store->groups()[0])).ok());
  };
  const auto expect_replaced = [&](const DiskStoreOptions& with, std::string_view why) {
    const auto store = open(with);
    ASSERT_EQ(store->losses().size(), 1u);
    EXPECT_NE(store->losses()[0].find(why), std::string::npos) << store->losses()[0];
    EXPECT_TRUE(recover_all(*store).empty());
    EXPECT_EQ(store->stats().foreign_total + store->stats().damaged_total, 0u);
  };
  fill(options());
  DiskStoreOptions with = options();
  with.model_fingerprint[15] ^= 1;
  expect_replaced(with, "state of another model, type or version");
  fill(with);
  with.groups[0].layers = 6;
  expect_replaced(with, "another shape");
  fill(with);
  std::filesystem::resize_file(with.directories[0].path + "/group-0.slots", 4096);
  expect_replaced(with, "files are missing");
  fill(with);
  std::filesystem::remove(with.directories[0].path + "/secret");
  expect_replaced(with, "another set of directories");
  fill(with);
  std::filesystem::remove(with.directories[0].path + "/superblock");
  expect_replaced(with, "superblock is missing");
}

TEST_P(DiskStoreContract, SpaceThatIsNotThereIsNotTaken) {
  DiskStoreOptions with = options();
  with.directories[0].bytes = std::uint64_t{1} << 50;
  const Status status = DiskStore::open(with).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.field(), "disk");
  EXPECT_NE(status.message().find(with.directories[0].path + ": expected "), std::string::npos);
  EXPECT_NE(status.message().find(" of free space, found "), std::string::npos) << status.message();
  EXPECT_FALSE(std::filesystem::exists(with.directories[0].path + "/group-0.headers"));
  open()->notes();  // and less of it may be asked for
}

TEST_P(DiskStoreContract, AFileThatIsCutShortIsDamaged) {
  const auto store = open();
  for (const std::uint32_t slot : {0u, 9u}) {
    ASSERT_TRUE(
        write_one(*store, 0, SlotId(slot), test_entry(slot), test_bytes(slot, store->groups()[0])).ok());
  }
  std::filesystem::resize_file(options().directories[0].path + "/group-0.slots", 9 * 5 * 4096 + 4096);
  EXPECT_EQ(read_one(*store, 0, SlotId(9), test_key(9)).status->code(), StatusCode::kDataLoss);
  EXPECT_EQ(store->stats().damaged_total, 1u);
  expect_entry(*store, 0, SlotId(0), 0);
}

// As in a default container. The filter holds for this thread and those that it starts.
void refuse_io_uring() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = std::size(program), .filter = program};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

TEST(DiskStore, UsesThreadsWhereIoUringIsRefused) {
  std::thread([] {
    refuse_io_uring();
    const TestFolder folder;
    DiskStoreOptions with{.directories = {{folder.file("state"), kMiB}},
                          .groups = {{.layers = 2, .layer_slice_bytes = 100}}};
    const auto store = DiskStore::open(with).value();
    EXPECT_EQ(store->stats().io, "threads");
    ASSERT_EQ(store->notes().size(), 1u);
    EXPECT_NE(store->notes()[0].find("io_uring is refused: Operation not permitted"), std::string::npos);
    ASSERT_TRUE(write_one(*store, 0, SlotId(0), test_entry(1), test_bytes(1, store->groups()[0])).ok());
    expect_entry(*store, 0, SlotId(0), 1);
    with.directories[0].path = folder.file("other");
    with.io = "io_uring";
    const Status status = DiskStore::open(with).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.field(), "disk_io");
    EXPECT_NE(status.message().find("; expected auto or threads"), std::string::npos) << status.message();
    with.io = "mmap";
    const Status unknown = DiskStore::open(with).status();
    EXPECT_EQ(unknown.field(), "disk_io");
    EXPECT_EQ(unknown.message(), "expected auto, io_uring or threads, found mmap");
  }).join();
}

TEST_P(DiskStoreContract, AddingADirectoryReplacesTheSet) {
  {
    const auto store = open(options(1));
    ASSERT_TRUE(write_one(*store, 0, SlotId(0), test_entry(1), test_bytes(1, store->groups()[0])).ok());
  }
  const auto store = open(options(2));
  EXPECT_EQ(store->losses().size(), 1u);
  EXPECT_TRUE(recover_all(*store).empty());
}

}  // namespace
}  // namespace loci
