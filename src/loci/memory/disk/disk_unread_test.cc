// SPDX-License-Identifier: Apache-2.0
// Starts on a disk that does not read all records.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/memory/disk/disk_layout.h"
#include "loci/memory/disk/disk_testing.h"
#include "loci/memory/disk/faulty_disk_testing.h"
#include "loci/memory/disk/open_disk_store.h"

namespace loci {
namespace {

// Blocks A, B ... of one conversation, each below the one before, of which some records cannot be read.
class ChainOnAFailingDisk : public ::testing::Test {
 protected:
  using Kind = FaultAnswer::Kind;
  using Depths = std::multiset<std::uint32_t>;

  static DiskStoreOptions options() {
    return {.directories = {{"disk0", 400'000}},
            .groups = {{.layers = 4, .layer_slice_bytes = 4000}, {.layers = 2, .layer_slice_bytes = 4096}}};
  }
  std::unique_ptr<DiskStore> open(const DiskStoreOptions& with = options()) {
    auto store = open_disk_store(with, disk_.folders(), clock_);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return std::move(store).value();
  }
  // The file of records is refused until all is readable again.
  void refuse(std::string_view file) {
    disk_.set_judge([=](const FaultyOperation& one) {
      return !one.write && one.file == file ? FaultAnswer{Kind::kError, EIO} : FaultAnswer{};
    });
  }
  void refuse_nothing() { disk_.set_judge(nullptr); }
  static BlockEntry entry(std::uint32_t depth) {
    BlockEntry one = test_entry(depth, depth);
    one.parent = test_key(depth - 1);
    one.parent_kind = depth == 1 ? ParentKind::kRoot : ParentKind::kBlock;
    one.above = {};
    return one;
  }
  static void put(DiskStore& store, std::uint32_t group, std::uint32_t slot, std::uint32_t depth) {
    ASSERT_TRUE(
        write_one(store, group, SlotId(slot), entry(depth), test_bytes(depth, store.groups()[group])).ok());
  }
  static void put_hole(DiskStore& store, std::uint32_t depth) {
    store.change({.kind = RecordChange::Kind::kHole, .slot = SlotId(0), .entry = entry(depth)});
  }
  // Starts as a server does, and forgets what the core would forget: blocks without a parent, second copies,
  // and holes that lead to nothing. Returns the depth of each entry that was there.
  static Depths start(DiskStore& store) {
    const std::vector<RecoveredEntry> found = recover_all(store);
    std::set<ChainKey> above, taken;
    Depths depths;
    for (const RecoveredEntry& one : found) above.insert(one.entry.parent);
    for (const RecoveredEntry& one : found) {
      const bool joined = one.entry.depth == 1 || taken.contains(one.entry.parent);
      const bool useful = !one.hole || above.contains(one.entry.key);
      depths.insert(one.entry.depth);
      if (joined && useful && taken.insert(one.entry.key).second) continue;
      store.change({.kind = one.hole ? RecordChange::Kind::kForgetHole : RecordChange::Kind::kForget,
                    .group = one.group,
                    .slot = one.slot});
    }
    return depths;
  }

  FaultyDisk disk_;
  SystemClock clock_;
};

TEST_F(ChainOnAFailingDisk, AnErrorThatPassesCostsNothing) {
  auto store = open();
  put(*store, 0, 0, 1);
  put(*store, 1, 0, 2);
  store = open();
  std::atomic<int> reads{0};
  disk_.set_judge([&](const FaultyOperation& one) {
    const bool fails = !one.write && one.file == "group-0.headers" && reads++ == 0;
    return fails ? FaultAnswer{Kind::kError, EIO} : FaultAnswer{};
  });
  EXPECT_EQ(start(*store), (Depths{1, 2}));
  EXPECT_EQ(store->stats().read_errors_total, 1u);
  store = open();
  EXPECT_EQ(start(*store), (Depths{1, 2}));
}

TEST_F(ChainOnAFailingDisk, ASectorThatStaysUnreadableCostsWhatIsInIt) {
  auto store = open();
  for (std::uint32_t slot = 0; slot < 6; ++slot) put(*store, 0, slot, slot + 1);
  store = open();
  const std::uint64_t stride = divide_space(options()).value().record_stride(0);
  disk_.set_judge([&](const FaultyOperation& one) {
    const bool fails = !one.write && one.file == "group-0.headers" && one.offset <= 3 * stride &&
                       one.offset + one.bytes > 3 * stride;
    return fails ? FaultAnswer{Kind::kError, EIO} : FaultAnswer{};
  });
  EXPECT_EQ(start(*store), (Depths{1, 2, 3})) << "5 and 6 hang from 4";
  refuse_nothing();
  store = open();
  EXPECT_EQ(start(*store), (Depths{1, 2, 3, 4, 5, 6}));
}

TEST_F(ChainOnAFailingDisk, WhatHangsFromUnreadRecordsIsThereAtTheNextStart) {
  std::mutex mutex;
  std::vector<std::string> said;
  DiskStoreOptions with = options();
  with.warn = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    said.push_back(line);
  };
  auto store = open(with);
  put(*store, 0, 0, 1);
  put(*store, 1, 0, 2);
  store = open(with);
  refuse("group-0.headers");
  EXPECT_EQ(start(*store), Depths{});
  refuse_nothing();
  put(*store, 1, 1, 7);
  store = open(with);
  EXPECT_EQ(start(*store), (Depths{1, 2, 7})) << "7 is an orphan, and is forgotten";
  store = open(with);
  EXPECT_EQ(start(*store), (Depths{1, 2}));
  store.reset();
  const std::lock_guard lock(mutex);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("could not be read"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("disk0"), std::string::npos) << said[0];
}

TEST_F(ChainOnAFailingDisk, AHoleStaysThatMayLeadToAnUnreadRecord) {
  auto store = open();
  put_hole(*store, 1);
  put(*store, 0, 0, 2);
  store = open();
  refuse("group-0.headers");
  EXPECT_EQ(start(*store), Depths{});
  refuse_nothing();
  store = open();
  EXPECT_EQ(start(*store), (Depths{1, 2}));
}

// A block that is saved again while its record cannot be read has two: deleting its conversation must leave
// none.
TEST_F(ChainOnAFailingDisk, ABlockSavedAgainIsForgottenForGood) {
  auto store = open();
  put(*store, 0, 0, 1);
  store = open();
  refuse("group-0.headers");
  EXPECT_EQ(start(*store), Depths{});
  refuse_nothing();
  put(*store, 0, 1, 1);
  store = open();
  EXPECT_EQ(start(*store), (Depths{1, 1}));
  store = open();
  EXPECT_EQ(start(*store), Depths{1}) << "the older one was forgotten";
}

}  // namespace
}  // namespace loci
