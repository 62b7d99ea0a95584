// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/inspect_state.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "loci/base/folder_testing.h"
#include "loci/memory/disk/disk_models.h"
#include "loci/memory/disk/disk_testing.h"

namespace loci {
namespace {

void expect_in(const std::string& report, std::string_view text) {
  EXPECT_NE(report.find(text), std::string::npos) << text << "\nis not in\n" << report;
}

class InspectState : public ::testing::Test {
 protected:
  InspectState() {
    options_.directories = {{folder_.file("a"), 4 << 20}, {folder_.file("b"), 4 << 20}};
    options_.groups = {{.layers = 30, .layer_slice_bytes = 24 << 10},
                       {.layers = 2, .layer_slice_bytes = 100}};
    options_.model_fingerprint.fill(0xab);
  }

  TestFolder folder_;
  DiskStoreOptions options_;
};

TEST_F(InspectState, SaysWhatADirectoryHolds) {
  {
    const auto store = DiskStore::open(options_).value();
    BlockEntry entry = test_entry(1);
    entry.used_at = 1'700'000'000'000;
    for (const std::uint32_t slot : {0u, 1u, 2u}) {
      ASSERT_TRUE(write_one(*store, 0, SlotId(slot), entry, test_bytes(1, store->groups()[0])).ok());
      entry.used_at += 3'600'000;
    }
    store->change({.kind = RecordChange::Kind::kHole, .slot = SlotId(4), .entry = entry});
    expect_in(inspect_state(folder_.file("a")).value(),
              fmt::format("in use               by process {}", ::getpid()));
  }
  {
    std::fstream headers(folder_.file("a") + "/group-0.headers",
                         std::ios::in | std::ios::out | std::ios::binary);
    headers.seekp(512 + 60);  // of slot 2
    headers.put('x');
  }
  EXPECT_TRUE(is_state_directory(folder_.file("a")));
  const std::string report = inspect_state(folder_.file("a")).value();
  expect_in(report, "  in use               no\n");
  expect_in(report, "  model                abababababababababababababababab\n");
  expect_in(report, "  kept unused          no limit\n");
  expect_in(report, "  directory            1 of 2, set ");
  expect_in(report,
            "  group    layers                    slots    entries       size  damaged  foreign  oldest "
            "(UTC)      newest\n");
  expect_in(report,
            "  0        30 of 24.0 KiB                5          1  720.5 KiB        1        0  2023-11-14 "
            "22:13  2023-11-14 22:13\n");
  expect_in(report,
            "  1        2 of 100 B                    5          0        0 B        0        0  -           "
            "      -\n");
  expect_in(report,
            "  holes    -                            10          1      512 B        0        0  2023-11-15 "
            "01:13  2023-11-15 01:13\n");
  expect_in(inspect_state(folder_.file("b")).value(), "  directory            2 of 2, set ");
}

TEST_F(InspectState, SaysHowLongStateIsKeptUnused) {
  options_.directories = {{folder_.file("models/abab"), 4 << 20}};
  options_.state_ttl = 7 * 86'400 * kNanosPerSecond;
  DiskStore::open(options_).value().reset();
  expect_in(inspect_state(folder_.file("models/abab")).value(), "  kept unused          7d\n");
  expect_in(inspect_state(folder_.path()).value(), "  kept unused  served\n");
  expect_in(inspect_state(folder_.path()).value(), "  7d           no\n");
  std::filesystem::remove(folder_.file("models/abab/limit"));
  expect_in(inspect_state(folder_.path()).value(), "  not noted    no\n");
}

TEST_F(InspectState, SaysThatADirectoryHasNoModels) {
  ASSERT_TRUE(prepare_model_folder(folder_.path(), "abab", {.name = "tiny", .path = "/tiny.gguf"}).ok());
  options_.directories = {{model_folder(folder_.path(), "abab"), 4 << 20}};
  DiskStore::open(options_).value().reset();
  expect_in(inspect_state(folder_.path()).value(), "  models               1\n");
  for (const StoredModel& model : list_stored_models(folder_.path()))
    ASSERT_TRUE(forget_stored_model(model).ok());
  ASSERT_TRUE(is_state_directory(folder_.path()));
  expect_in(inspect_state(folder_.path()).value(), "  models               0\n");
}

TEST_F(InspectState, SaysWhatIsWrongWithADirectory) {
  EXPECT_FALSE(is_state_directory(folder_.path()));
  EXPECT_EQ(inspect_state(folder_.path()).status().code(), StatusCode::kNotFound);
  DiskStore::open(options_).value().reset();
  std::filesystem::resize_file(folder_.file("b") + "/holes.headers", 512);
  EXPECT_EQ(inspect_state(folder_.file("b")).status().code(), StatusCode::kDataLoss);
  std::ofstream(folder_.file("a") + "/superblock") << "nothing";
  EXPECT_EQ(inspect_state(folder_.file("a")).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace loci
