// SPDX-License-Identifier: Apache-2.0
#include "loci/server/state_tiers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "loci/base/folder_testing.h"
#include "loci/memory/disk/disk_survey.h"

namespace loci {
namespace {

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;

BackendInfo backend() {
  BackendInfo info;
  info.layout = "test";
  info.layers = 4;
  info.groups = {{.layers = {1, 3}, .window = 0, .layer_slice_bytes = 4096, .block_bytes = 8192},
                 {.layers = {0, 2}, .window = 64, .layer_slice_bytes = 4096, .block_bytes = 8192}};
  info.block_bytes = 16384;
  return info;
}

class StateTiersTest : public testing::Test {
 protected:
  void SetUp() override {
    request_.backend = &backend_;
    request_.context_tokens = 2048;
    request_.default_folder = folder_ + "/default";
  }

  DiskPlace sized(const std::string& name, std::uint64_t bytes = 4 * kMib) const {
    return {.path = folder_ + "/" + name, .bytes = bytes};
  }

  const TestFolder test_folder_;
  const std::string folder_ = test_folder_.path();
  BackendInfo backend_ = backend();
  TierRequest request_;
};

TEST_F(StateTiersTest, HostMemoryIsSplitAsTheDeviceIs) {
  request_.disk.emplace();
  request_.host_bytes = kMib;
  const Result<StateTiers> tiers = open_state_tiers(request_);
  ASSERT_TRUE(tiers.ok()) << tiers.status().to_string();
  ASSERT_EQ(tiers->host_blocks.size(), 2u);
  // A conversation of 2,048 tokens: 64 blocks, and the 4 of a window.
  EXPECT_EQ(tiers->host_blocks[0], 120u);
  EXPECT_EQ(tiers->host_blocks[1], 7u);
  EXPECT_EQ(tiers->disk, nullptr);
  EXPECT_EQ(tiers->disk_summary, "none");
  request_.host_bytes = 0;
  EXPECT_TRUE(open_state_tiers(request_)->host_blocks.empty());
  request_.host_bytes = 8192;
  EXPECT_EQ(open_state_tiers(request_).status().field(), "host_memory");
  request_.host_bytes = std::uint64_t{1} << 62;
  EXPECT_EQ(open_state_tiers(request_).status().field(), "host_memory") << "more blocks than are counted";
}

TEST_F(StateTiersTest, TheDiskIsStripedAndKeepsItsSecretAndItsSize) {
  request_.disk = std::vector<DiskPlace>{sized("a"), sized("b")};
  std::array<std::uint8_t, 32> secret{};
  std::vector<std::uint32_t> slots;
  {
    const Result<StateTiers> tiers = open_state_tiers(request_);
    ASSERT_TRUE(tiers.ok()) << tiers.status().to_string();
    ASSERT_EQ(tiers->disk->groups().size(), 2u);
    EXPECT_GT(tiers->disk->groups()[0].slots, 10 * tiers->disk->groups()[1].slots);
    EXPECT_NE(tiers->disk_summary.find(folder_ + "/a, " + folder_ + "/b"), std::string::npos);
    secret = tiers->disk->secret();
    EXPECT_TRUE(tiers->warnings.empty());
  }
  const Result<StateTiers> again = open_state_tiers(request_);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->disk->secret(), secret);
}

TEST_F(StateTiersTest, ADefaultSizeStaysWhatItWas) {
  std::filesystem::create_directories(folder_ + "/d");
  const std::uint64_t first = default_disk_bytes(folder_ + "/d/not/there");
  EXPECT_GT(first, 0u);
  EXPECT_LE(first, std::uint64_t{16} << 30);
  std::ofstream(folder_ + "/d/size") << 12345678 << "\n";
  EXPECT_EQ(default_disk_bytes(folder_ + "/d"), 12345678u);
}

TEST_F(StateTiersTest, WhatWasAskedForIsAnErrorWhatWasNotAWarning) {
  std::ofstream(folder_ + "/file") << "not a directory";
  request_.disk = std::vector<DiskPlace>{sized("file/below")};
  EXPECT_EQ(open_state_tiers(request_).status().field(), "disk");
  request_.disk = std::vector<DiskPlace>{sized("small", 8 << 10)};
  EXPECT_EQ(open_state_tiers(request_).status().field(), "disk");
  request_.disk.reset();
  request_.default_folder = folder_ + "/file/below";
  const Result<StateTiers> tiers = open_state_tiers(request_);
  ASSERT_TRUE(tiers.ok()) << tiers.status().to_string();
  EXPECT_EQ(tiers->disk, nullptr);
  ASSERT_EQ(tiers->warnings.size(), 1u);
  EXPECT_NE(tiers->warnings[0].find("disk"), std::string::npos);
}

TEST_F(StateTiersTest, TwoServersOfOneModelDoNotShareADirectory) {
  request_.disk = std::vector<DiskPlace>{sized("a")};
  const Result<StateTiers> first = open_state_tiers(request_);
  ASSERT_TRUE(first.ok());
  const Status second = open_state_tiers(request_).status();
  EXPECT_EQ(second.field(), "disk");
  EXPECT_NE(second.message().find("another server"), std::string::npos) << second.message();
  // One of another model does, and has room of the same budget.
  request_.model_fingerprint.fill(9);
  const Result<StateTiers> other = open_state_tiers(request_);
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_GT(other->room, 0u);
  EXPECT_LE(first->room + other->room, 4 * kMib);
}

TEST_F(StateTiersTest, TheModelsFolderNotesHowLongStateIsKept) {
  const auto noted = [this](std::optional<Nanos> limit) {
    request_.disk = std::vector<DiskPlace>{sized("a")};
    request_.state_ttl = limit.value_or(kNever);
    EXPECT_TRUE(open_state_tiers(request_).ok());
    const std::vector<StoredModel> models = list_stored_models(folder_ + "/a");
    EXPECT_EQ(models.size(), 1u);
    return read_disk_limit(models[0].folder, *fingerprint_of(models[0].id)).value();
  };
  EXPECT_EQ(noted(kNanosPerSecond), kNanosPerSecond);
  EXPECT_EQ(noted(std::nullopt), kNever);
}

TEST_F(StateTiersTest, KeysComeFromTheClusterElseFromTheDiskElseFromNowhere) {
  const auto chain_secret = [this](std::vector<DiskPlace> disk) {
    request_.disk = std::move(disk);
    const Result<StateTiers> tiers = open_state_tiers(request_);
    EXPECT_TRUE(tiers.ok()) << tiers.status().to_string();
    EXPECT_TRUE(tiers->warnings.empty());
    return tiers->chain_secret;
  };
  const auto of_disk = chain_secret({sized("a")});
  EXPECT_EQ(chain_secret({sized("a")}), of_disk);
  EXPECT_NE(chain_secret({sized("b")}), of_disk);
  EXPECT_NE(chain_secret({}), chain_secret({}));
  request_.cluster_secret = ClusterSecret{1};
  const auto of_cluster = chain_secret({sized("a")});
  EXPECT_NE(of_cluster, of_disk);
  EXPECT_EQ(chain_secret({sized("b")}), of_cluster);
  EXPECT_EQ(chain_secret({}), of_cluster);
  // State that is computed or laid out in another way, and state under another secret, has other keys.
  backend_.layout = "another";
  EXPECT_NE(chain_secret({}), of_cluster);
  backend_.layout = "test";
  request_.model_fingerprint.fill(9);
  EXPECT_NE(chain_secret({}), of_cluster);
  request_.model_fingerprint.fill(0);
  request_.cluster_secret = ClusterSecret{2};
  EXPECT_NE(chain_secret({sized("a")}), of_cluster);
  // What lay in the directory without a cluster lies there still.
  request_.cluster_secret.reset();
  EXPECT_EQ(chain_secret({sized("a")}), of_disk);
}

}  // namespace
}  // namespace loci
