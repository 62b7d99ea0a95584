// SPDX-License-Identifier: Apache-2.0
// The disk store on disks that lie, lose and fail. (disk_hangs_test.cc: those that do not answer.)
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/rounds_testing.h"
#include "loci/memory/disk/disk_fault_testing.h"
#include "loci/memory/disk/disk_format.h"
#include "loci/memory/disk/disk_layout.h"

namespace loci {
namespace {

using Kind = FaultAnswer::Kind;

TEST_F(DiskFaults, ServesWhatItWroteOrNothing) {
  std::uint64_t whole = 0, lost = 0, damaged = 0;
  for (std::uint64_t seed = 0; seed < test_rounds(60); ++seed) {
    Random random(seed);
    FaultyDisk disk;
    const DiskStoreOptions with = options(1 + seed % 3);
    {
      (void)open_disk_store(with, disk.folders(), clock_).value();
    }
    disk.sync();
    for (int life = 0; life < 3; ++life) {
      {
        const auto store = open_disk_store(with, disk.folders(), clock_).value();
        std::vector<std::future<Status>> writes;
        for (int i = 0; i < 60; ++i) {
          const auto group = static_cast<std::uint32_t>(random.below(2));
          const SlotId slot(
              static_cast<std::uint32_t>(random.below(std::min(6u, store->groups()[group].slots))));
          // So few seeds that a slot often gets again what it held before.
          const std::uint64_t content = random.below(12) * 2 + group;
          if (random.below(8) == 0) {
            store->change({.kind = RecordChange::Kind::kForget, .group = group, .slot = slot});
          } else if (random.below(8) == 0) {
            store->change({.kind = RecordChange::Kind::kHole, .slot = slot, .entry = test_entry(content)});
          } else {
            writes.push_back(write_later(*store, group, slot, test_entry(content),
                                         test_bytes(content, store->groups()[group])));
          }
          if (random.below(30) == 0) disk.sync();
        }
        for (auto& one : writes) ASSERT_TRUE(one.get().ok());
      }
      disk.lose_power(random);
      const auto store = open_disk_store(with, disk.folders(), clock_).value();
      ASSERT_TRUE(store->notes().empty()) << store->notes()[0];
      for (const RecoveredEntry& one : recover_all(*store)) {
        // The header is one that was written there...
        std::uint64_t content = 0;
        while (content < 24 && !(test_entry(content) == one.entry)) ++content;
        ASSERT_LT(content, 24u);
        if (one.hole) continue;
        ASSERT_EQ(content % 2, one.group);
        // ... and the state is what belongs to it, or is not served.
        const auto item = read_one(*store, one.group, one.slot, one.entry.key);
        if (item.status->ok()) {
          ++whole;
          ASSERT_EQ(item.bytes, test_bytes(content, store->groups()[one.group]));
        } else {
          ++lost;
          ASSERT_EQ(item.status->code(), StatusCode::kDataLoss);
          const std::vector<std::byte> expected = test_bytes(content, store->groups()[one.group]);
          ASSERT_TRUE(std::equal(item.bytes.begin(), item.bytes.end(), expected.begin()));
        }
      }
      damaged += store->stats().damaged_total;
    }
  }
  // The test is worth something only where all of it happens.
  EXPECT_GT(whole, test_rounds(100));
  EXPECT_GT(lost, test_rounds(100));
  EXPECT_GE(damaged, lost);
}

TEST_F(DiskFaults, AnyFlipIsFoundWhereverItIs) {
  auto store = open();
  const DiskLayout layout = divide_space(options()).value();
  ASSERT_TRUE(write(*store, 0, 5, 50).ok());
  std::uint64_t damaged = 0;
  const auto expect_damaged = [&](const std::string& file, std::uint64_t offset, bool header) {
    disk_.flip("disk0", file, offset);
    EXPECT_EQ(read_one(*store, 0, SlotId(5), test_key(50)).status->code(), StatusCode::kDataLoss);
    EXPECT_EQ(store->stats().damaged_total, ++damaged) << file << " " << offset;
    store = open();
    damaged = header ? 1 : 0;
    EXPECT_EQ(recover_all(*store).size(), header ? 0u : 1u);
    EXPECT_EQ(store->stats().damaged_total, damaged);
    disk_.flip("disk0", file, offset);
  };
  for (std::uint64_t at = 0; at < layout.record_stride(0); at += 7) {
    expect_damaged("group-0.headers", 5 * layout.record_stride(0) + at, true);
  }
  // What a start found damaged gave its space back.
  ASSERT_TRUE(write(*store, 0, 5, 50).ok());
  for (std::uint32_t layer = 0; layer < 4; ++layer) {
    for (const std::uint64_t at : {0, 500, 999}) {
      expect_damaged("group-0.slots", 5 * layout.slot_stride(0) + layout.slice_offset(0, layer) + at, false);
    }
  }
  EXPECT_TRUE(read_one(*store, 0, SlotId(5), test_key(50)).status->ok());
}

TEST_F(DiskFaults, LayersBeforeADamagedOneAreServed) {
  const auto store = open();
  const DiskLayout layout = divide_space(options()).value();
  ASSERT_TRUE(write(*store, 0, 1, 10).ok());
  disk_.flip("disk0", "group-0.slots", layout.slot_stride(0) + layout.slice_offset(0, 2));
  const auto item = read_one(*store, 0, SlotId(1), test_key(10), 1);
  EXPECT_EQ(item.status->code(), StatusCode::kDataLoss);
  EXPECT_EQ(item.layers, 2u);
}

TEST_F(DiskFaults, AnotherModelsEntryIsCountedAndNotFound) {
  const auto store = open();
  std::vector<std::byte> record(record_bytes(4));
  RecordPlace place({}, 0, 2, StateForm::kKeysAndValues);
  place.model_fingerprint.fill(99);
  encode_record(place, test_entry(20), std::vector<std::uint64_t>(4), record);
  const auto file = disk_.folders()("disk0")->open("group-0.headers", FileCaching::kCached).value();
  ASSERT_EQ(file->write(2 * record.size(), record), static_cast<std::int64_t>(record.size()));
  EXPECT_EQ(read_one(*store, 0, SlotId(2), test_key(20)).status->code(), StatusCode::kDataLoss);
  EXPECT_TRUE(recover_all(*store).empty());
  EXPECT_EQ(store->stats().foreign_total, 2u);
  EXPECT_EQ(store->stats().damaged_total, 0u);
}

TEST_F(DiskFaults, AnErrorEndsItsItemAlone) {
  const auto store = open();
  const DiskLayout layout = divide_space(options()).value();
  for (std::uint32_t slot = 0; slot < 4; ++slot) ASSERT_TRUE(write(*store, 0, slot, slot * 10).ok());
  disk_.set_judge([&](const FaultyOperation& one) {
    const bool bad = one.file == "group-0.slots" && one.offset / layout.slot_stride(0) == 2;
    return bad ? FaultAnswer{Kind::kError, EIO} : FaultAnswer{};
  });
  const auto sink = std::make_shared<CollectingSink>(4);
  store->read({{0, SlotId(0), test_key(0)},
               {0, SlotId(1), test_key(10)},
               {0, SlotId(2), test_key(20)},
               {0, SlotId(3), test_key(30)}},
              1, sink);
  for (std::uint32_t slot = 0; slot < 4; ++slot) {
    EXPECT_EQ(sink->wait()[slot].status->code(), slot == 2 ? StatusCode::kUnavailable : StatusCode::kOk);
  }
  EXPECT_EQ(store->stats().read_errors_total, 1u);
  EXPECT_EQ(write(*store, 0, 2, 21).code(), StatusCode::kUnavailable);
  EXPECT_EQ(store->stats().write_errors_total, 1u);
  disk_.set_judge(nullptr);
  // What could not be written whole is not found.
  EXPECT_EQ(read_one(*store, 0, SlotId(2), test_key(20)).status->code(), StatusCode::kDataLoss);
  EXPECT_EQ(read_one(*store, 0, SlotId(2), test_key(21)).status->code(), StatusCode::kDataLoss);
  EXPECT_TRUE(write(*store, 0, 2, 22).ok());
  EXPECT_TRUE(read_one(*store, 0, SlotId(2), test_key(22)).status->ok());
}

TEST_F(DiskFaults, AFullDiskIsSaidSo) {
  const auto store = open();
  for (const char* file : {".slots", ".headers"}) {
    for (const int error : {ENOSPC, EDQUOT}) {
      disk_.set_judge(only(true, file, {Kind::kError, error}));
      EXPECT_EQ(write(*store, 1, 0, 3).code(), StatusCode::kResourceExhausted) << error;
    }
  }
  store->change({.kind = RecordChange::Kind::kForget, .group = 0, .slot = SlotId(2)});
  disk_.set_judge(nullptr);
  EXPECT_TRUE(write(*store, 1, 0, 3).ok());
}

TEST_F(DiskFaults, ShortAnswersAreAskedAgain) {
  const auto store = open();
  disk_.set_judge([](const FaultyOperation& one) {
    if (one.bytes <= kDiskAlignment) return FaultAnswer{};
    return FaultAnswer{.kind = Kind::kShort, .bytes = one.bytes / 2 + 100};
  });
  ASSERT_TRUE(write(*store, 0, 0, 7).ok());
  const auto item = read_one(*store, 0, SlotId(0), test_key(7), 4);
  ASSERT_TRUE(item.status->ok()) << item.status->to_string();
  EXPECT_EQ(item.bytes, test_bytes(7, store->groups()[0]));
  // The file ends: nothing is left to ask for.
  disk_.set_judge(only(false, ".slots", {.kind = Kind::kShort, .bytes = 0}));
  EXPECT_EQ(read_one(*store, 0, SlotId(0), test_key(7)).status->code(), StatusCode::kDataLoss);
  disk_.set_judge(only(true, ".slots", {.kind = Kind::kShort, .bytes = 0}));
  EXPECT_EQ(write(*store, 0, 0, 8).code(), StatusCode::kUnavailable);
}

TEST_F(DiskFaults, RecoveryOutlivesErrors) {
  {
    const auto store = open();
    ASSERT_TRUE(write(*store, 0, 0, 1).ok());
    ASSERT_TRUE(write(*store, 1, 0, 4).ok());  // a root's
  }
  const auto store = open();
  disk_.set_judge(only(false, "group-0.headers", {Kind::kError, EIO}));
  const auto found = recover_all(*store);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].group, 1u);
  EXPECT_EQ(store->stats().read_errors_total, 1u);
}

TEST_F(DiskFaults, WhateverFailsNothingWrongIsServedAndEveryCallEnds) {
  std::uint64_t served = 0, failed = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    FaultyDisk disk;
    DiskStoreOptions with = options(1 + seed % 3);
    with.queue_depth = static_cast<std::uint32_t>(1 + random.below(20));
    const auto store = open_disk_store(with, disk.folders(), clock_).value();
    std::atomic<std::uint64_t> draws{0};
    disk.set_judge([&draws, seed](const FaultyOperation& one) {
      const std::uint64_t word = random_word(seed + 1000, draws++);
      if (word % 16 == 0) return FaultAnswer{Kind::kError, word % 3 == 0 ? ENOSPC : EIO};
      if (word % 16 == 1) return FaultAnswer{Kind::kError, word % 3 == 0 ? EINTR : EAGAIN};
      if (word % 16 < 4) return FaultAnswer{.kind = Kind::kShort, .bytes = one.bytes * (word % 7) / 7};
      return FaultAnswer{};
    });
    std::vector<std::future<Status>> writes;
    std::vector<std::pair<std::vector<BlockRead>, std::shared_ptr<CollectingSink>>> reads;
    const auto read_later = [&](std::uint32_t group, SlotId slot, std::uint64_t content) {
      reads.push_back({{{group, slot, test_key(content)}}, std::make_shared<CollectingSink>(1)});
      store->read(reads.back().first, static_cast<std::uint32_t>(random.below(4)), reads.back().second);
    };
    for (int i = 0; i < 200; ++i) {
      const auto group = static_cast<std::uint32_t>(random.below(2));
      const SlotId slot(static_cast<std::uint32_t>(random.below(4)));
      const std::uint64_t content = random.below(5) * 2 + group;
      if (random.below(3) == 0) {
        read_later(group, slot, content);
      } else {
        writes.push_back(write_later(*store, group, slot, test_entry(content),
                                     test_bytes(content, store->groups()[group])));
        // Some are read as soon as they are there: of the other reads, few meet what they ask for.
        if (random.below(10) == 0) {
          writes.back().wait();
          read_later(group, slot, content);
        }
      }
      if (random.below(4) == 0) std::this_thread::yield();
    }
    for (auto& one : writes) failed += one.get().ok() ? 0 : 1;
    for (const auto& [items, sink] : reads) {
      const CollectingSink::Item& item = sink->wait()[0];
      std::uint64_t content = 0;
      while (!(test_key(content) == items[0].key)) ++content;
      const std::vector<std::byte> expected = test_bytes(content, store->groups()[items[0].group]);
      ASSERT_TRUE(std::equal(item.bytes.begin(), item.bytes.end(), expected.begin()));
      ASSERT_EQ(item.status->ok(), item.layers == store->groups()[items[0].group].layers);
      served += item.status->ok() ? 1 : 0;
    }
    disk.set_judge(nullptr);
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
      ASSERT_TRUE(write(*store, 0, slot, slot * 2).ok());
      ASSERT_TRUE(read_one(*store, 0, SlotId(slot), test_key(slot * 2)).status->ok());
    }
  }
  EXPECT_GT(served, 100u);
  EXPECT_GT(failed, 100u);
}

// An error that may pass costs no state: the start is refused, and the next one finds all.
TEST_F(DiskFaults, WhatCannotBeReadNowIsKept) {
  for (const std::string file : {"secret", "superblock"}) {
    for (const std::size_t directory : {0u, 1u}) {
      if (file == "secret" && directory == 1) continue;  // the first directory's counts
      FaultyDisk disk;
      {
        const auto store = open_disk_store(options(2), disk.folders(), clock_).value();
        ASSERT_TRUE(write(*store, 0, 0, 1).ok());
        ASSERT_TRUE(write(*store, 0, 1, 2).ok());
      }
      const std::string path = "disk" + std::to_string(directory);
      disk.set_judge([&](const FaultyOperation& one) {
        const bool fails = !one.write && one.directory == path && one.file == file;
        return fails ? FaultAnswer{.kind = Kind::kError, .error = EIO} : FaultAnswer{};
      });
      const Status status = open_disk_store(options(2), disk.folders(), clock_).status();
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_NE(status.message().find(path + "/" + file + ": cannot be read: "), std::string::npos)
          << status.message();
      disk.set_judge(nullptr);
      const auto store = open_disk_store(options(2), disk.folders(), clock_).value();
      EXPECT_TRUE(store->losses().empty());
      EXPECT_EQ(recover_all(*store).size(), 2u);
    }
  }
}

TEST_F(DiskFaults, WhatCannotGrowIsKept) {
  {
    const auto store = open();
    ASSERT_TRUE(write(*store, 0, 0, 1).ok());
  }
  disk_.set_judge(only(true, "superblock", {.kind = Kind::kError, .error = ENOSPC}));
  DiskStoreOptions larger = options();
  larger.directories[0].bytes *= 2;
  EXPECT_EQ(open_disk_store(larger, disk_.folders(), clock_).status().code(), StatusCode::kResourceExhausted);
  const auto store = open();
  EXPECT_TRUE(store->losses().empty());
  EXPECT_EQ(recover_all(*store).size(), 1u);
}

TEST_F(DiskFaults, ASetWhoseMakingFailedIsMadeAgain) {
  for (const std::string_view file : {"secret", "superblock"}) {
    FaultyDisk disk;
    disk.set_judge(only(true, file, {.kind = Kind::kError, .error = ENOSPC}));
    const Status status = open_disk_store(options(2), disk.folders(), clock_).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
    disk.set_judge(nullptr);
    EXPECT_TRUE(open_disk_store(options(2), disk.folders(), clock_).value()->losses().empty());
  }
}

TEST_F(DiskFaults, ASetThatLosesPowerIsFoundOrMadeAgain) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    FaultyDisk disk;
    std::array<std::uint8_t, 32> secret{};
    {
      const auto store = open_disk_store(options(2), disk.folders(), clock_).value();
      secret = store->secret();
      ASSERT_TRUE(write_one(*store, 0, SlotId(0), test_entry(1), test_bytes(1, store->groups()[0])).ok());
      ASSERT_TRUE(write_one(*store, 0, SlotId(1), test_entry(2), test_bytes(2, store->groups()[0])).ok());
    }
    disk.lose_power(random);
    const auto store = open_disk_store(options(2), disk.folders(), clock_).value();
    const auto found = recover_all(*store);
    // Keys are found again under the secret that they were made with, or not at all.
    if (store->secret() != secret) {
      EXPECT_TRUE(found.empty());
    }
    EXPECT_TRUE(write_one(*store, 0, SlotId(1), test_entry(3), test_bytes(3, store->groups()[0])).ok());
  }
}

}  // namespace
}  // namespace loci
