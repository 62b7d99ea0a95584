// SPDX-License-Identifier: Apache-2.0
// What stays of a store's files when it is opened with other groups than before.
#include "loci/memory/disk/disk_files.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "loci/base/folder_testing.h"
#include "loci/memory/disk/disk_format.h"
#include "loci/memory/disk/disk_models.h"
#include "loci/memory/disk/disk_survey.h"
#include "loci/memory/disk/disk_testing.h"
#include "loci/memory/disk/faulty_disk_testing.h"
#include "loci/memory/disk/open_disk_store.h"

namespace loci {
namespace {

constexpr std::uint64_t kSpace = 4 << 20;  // of a directory

class DiskFiles : public ::testing::Test {
 protected:
  // `hidden`: the bytes of a slice of hidden states; 0: there is no group for them.
  DiskStoreOptions options(std::uint64_t hidden) const {
    DiskStoreOptions all;
    all.directories = {{folder_.file("a"), kSpace}, {folder_.file("b"), kSpace}};
    all.groups = {{.layers = 4, .layer_slice_bytes = 8192}};
    all.shares = {2};
    if (hidden > 0)
      all.groups.push_back({.layers = 4, .layer_slice_bytes = hidden, .form = StateForm::kHidden});
    all.model_fingerprint.fill(7);
    return all;
  }
  std::unique_ptr<DiskStore> open(std::uint64_t hidden) const {
    auto store = DiskStore::open(options(hidden));
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    EXPECT_TRUE((*store)->losses().empty());
    return std::move(store).value();
  }
  // Slots 2 and 3 of the group: in both directories.
  static void fill(DiskStore& store, std::uint32_t group) {
    for (const std::uint32_t slot : {2u, 3u}) {
      const std::uint64_t seed = 100 * group + slot;
      EXPECT_TRUE(
          write_one(store, group, SlotId(slot), test_entry(seed), test_bytes(seed, store.groups()[group]))
              .ok());
    }
  }
  static void expect_filled(DiskStore& store, std::uint32_t group) {
    for (const std::uint32_t slot : {2u, 3u}) {
      const std::uint64_t seed = 100 * group + slot;
      EXPECT_EQ(read_one(store, group, SlotId(slot), test_key(seed)).bytes,
                test_bytes(seed, store.groups()[group]))
          << "group " << group << ", slot " << slot;
    }
  }
  // The superblock as version 1 would have written it. (Hidden states were in other rows then.)
  void make_first_version(const std::string& directory) const {
    const std::string path = folder_.file(directory + "/superblock");
    std::vector<char> bytes(kSuperblockBytes);
    std::ifstream(path).read(bytes.data(), kSuperblockBytes);
    ASSERT_EQ(bytes[16], 2);
    bytes[16] = 1;
    const std::uint64_t sum = XXH3_64bits_withSeed(bytes.data() + 8, bytes.size() - 8, kSuperblockSeed);
    std::memcpy(bytes.data(), &sum, sizeof sum);
    std::ofstream(path).write(bytes.data(), kSuperblockBytes);
  }
  bool exists(const std::string& file) const { return std::filesystem::exists(folder_.file(file)); }

  TestFolder folder_;
};

TEST_F(DiskFiles, KeysAndValuesStayWhenHiddenStatesComeBesideThem) {
  fill(*open(0), 0);
  {
    const auto store = open(4096);
    expect_filled(*store, 0);
    EXPECT_EQ(recover_all(*store).size(), 2u);
    fill(*store, 1);
  }
  const auto store = open(4096);
  expect_filled(*store, 0);
  expect_filled(*store, 1);
  EXPECT_EQ(recover_all(*store).size(), 4u);
}

TEST_F(DiskFiles, KeysAndValuesStayWhenHiddenStatesGo) {
  {
    const auto store = open(4096);
    fill(*store, 0);
    fill(*store, 1);
  }
  {
    const auto store = open(0);
    expect_filled(*store, 0);
    EXPECT_EQ(recover_all(*store).size(), 2u);
    EXPECT_FALSE(exists("a/group-1.slots") || exists("b/group-1.headers")) << "they take no more space";
  }
  const auto store = open(4096);
  expect_filled(*store, 0);
  EXPECT_EQ(recover_all(*store).size(), 2u) << "what went does not come back";
}

TEST_F(DiskFiles, KeysAndValuesStayWhenHiddenStatesHaveOtherRows) {
  {
    const auto store = open(4096);
    fill(*store, 0);
    fill(*store, 1);
  }
  const auto store = open(2048);
  expect_filled(*store, 0);
  EXPECT_EQ(recover_all(*store).size(), 2u);
  fill(*store, 1);
  expect_filled(*store, 1);
}

TEST_F(DiskFiles, KeysAndValuesStayWhereFilesOfHiddenStatesAreMissing) {
  {
    const auto store = open(4096);
    fill(*store, 0);
    fill(*store, 1);
  }
  std::filesystem::remove(folder_.file("a/group-1.slots"));
  auto store = DiskStore::open(options(4096)).value();
  ASSERT_EQ(store->losses().size(), 1u);
  EXPECT_NE(store->losses()[0].find("/a: the hidden states there cannot be kept"), std::string::npos);
  expect_filled(*store, 0);
  EXPECT_EQ(recover_all(*store).size(), 3u) << "the other directory has its half";
}

TEST_F(DiskFiles, OfVersionOneKeysAndValuesStayAndHiddenStatesGo) {
  for (const std::uint64_t hidden : {4096, 0}) {
    {
      const auto store = open(4096);
      fill(*store, 0);
      fill(*store, 1);
    }
    for (const char* directory : {"a", "b"}) make_first_version(directory);
    const auto store = open(hidden);
    expect_filled(*store, 0);
    EXPECT_EQ(recover_all(*store).size(), 2u);
    EXPECT_EQ(exists("a/group-1.slots"), hidden > 0);
  }
}

// Another model's: its hidden states, which nobody can read, go first.
TEST_F(DiskFiles, OfVersionOneHiddenStatesAreTheFirstThatGiveSpaceBack) {
  {
    const auto store = open(4096);
    fill(*store, 0);
    fill(*store, 1);
  }
  make_first_version("a");
  const StoredModel model{.folder = folder_.file("a")};
  const auto dropped = drop_oldest_state(model, 1);
  ASSERT_TRUE(dropped.ok()) << dropped.status().to_string();
  EXPECT_GT(dropped->freed_bytes, 0u);
  EXPECT_FALSE(exists("a/group-1.slots"));
  expect_filled(*open(0), 0);
}

TEST_F(DiskFiles, TheLimitIsNotedInEachDirectoryAndFollowsTheServers) {
  DiskStoreOptions with = options(0);
  const auto noted = [&](const char* directory) {
    return read_disk_limit(folder_.file(directory), with.model_fingerprint);
  };
  open(0).reset();
  EXPECT_EQ(noted("a").value(), kNever);
  std::filesystem::remove(folder_.file("a/limit"));
  EXPECT_EQ(noted("a").status().code(), StatusCode::kNotFound);
  for (const Nanos limit : {7 * kNanosPerSecond, 7 * kNanosPerSecond, 3 * kNanosPerSecond, kNever}) {
    with.state_ttl = limit;
    DiskStore::open(with).value().reset();
    EXPECT_EQ(noted("a").value(), limit);
    EXPECT_EQ(noted("b").value(), limit);
  }
  EXPECT_TRUE(open(0)->losses().empty());
}

// An earlier note may be of a shorter limit: without a note nobody drops anything.
TEST_F(DiskFiles, ANoteThatCannotBeWrittenDoesNotStay) {
  FaultyDisk disk;
  const SystemClock clock;
  DiskStoreOptions with = options(0);
  with.state_ttl = kNanosPerSecond;
  open_disk_store(with, disk.folders(), clock).value().reset();
  disk.set_judge([](const FaultyOperation& one) {
    return one.write && one.file == "limit" ? FaultAnswer{.kind = FaultAnswer::Kind::kError, .error = ENOSPC}
                                            : FaultAnswer{};
  });
  with.state_ttl = kNever;
  const auto store = open_disk_store(with, disk.folders(), clock).value();
  ASSERT_EQ(store->losses().size(), 2u);
  EXPECT_NE(store->losses()[0].find("/a: how long state is kept cannot be noted"), std::string::npos);
  const auto folder = disk.folders()(with.directories[0].path);
  EXPECT_EQ(folder->open("limit", FileCaching::kCached).status().code(), StatusCode::kNotFound);
}

TEST_F(DiskFiles, WhereNothingIsGivenBackThereAreKeysAndValuesAlone) {
  FaultyDisk disk;
  const SystemClock clock;
  {
    auto store = open_disk_store(options(4096), disk.folders(), clock).value();
    EXPECT_EQ(store->groups().size(), 2u);
    EXPECT_TRUE(store->notes().empty());
    fill(*store, 0);
    fill(*store, 1);
  }
  int error = EOPNOTSUPP;
  disk.set_judge([&error](const FaultyOperation& one) {
    return one.discard ? FaultAnswer{FaultAnswer::Kind::kError, error} : FaultAnswer{};
  });
  {
    const auto store = open_disk_store(options(4096), disk.folders(), clock).value();
    EXPECT_EQ(store->groups().size(), 1u);
    ASSERT_EQ(store->notes().size(), 1u);
    EXPECT_NE(store->notes()[0].find("/a: the file system cannot punch holes"), std::string::npos);
    expect_filled(*store, 0);
    EXPECT_LE(disk.bytes_of(folder_.file("a")), kSpace);
  }
  EXPECT_TRUE(open_disk_store(options(0), disk.folders(), clock).value()->notes().empty());
  error = EIO;
  const auto store = open_disk_store(options(4096), disk.folders(), clock);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  EXPECT_EQ((*store)->groups().size(), 2u) << "a trial that fails says nothing";
}

// Cut short between the superblock and the files that it names no longer, or does not name yet.
TEST_F(DiskFiles, FilesThatNoSuperblockNamesAreMadeAnew) {
  fill(*open(0), 0);
  for (const char* file : {"a/group-1.slots", "a/group-1.headers", "b/group-1.slots"})
    std::filesystem::copy_file(folder_.file("a/group-0.slots"), folder_.file(file));
  const auto store = open(4096);
  expect_filled(*store, 0);
  EXPECT_EQ(recover_all(*store).size(), 2u);
  fill(*store, 1);
  expect_filled(*store, 1);
}

}  // namespace
}  // namespace loci
