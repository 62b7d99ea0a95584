// SPDX-License-Identifier: Apache-2.0
// What stays of a store's files when it is opened with other groups than before.
#include "loci/memory/disk/disk_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "loci/base/folder_testing.h"
#include "loci/memory/disk/disk_testing.h"

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
    if (hidden > 0) {
      all.groups.push_back({.layers = 4, .layer_slice_bytes = hidden, .form = StateForm::kHidden});
      all.shares.push_back(1);
    }
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
