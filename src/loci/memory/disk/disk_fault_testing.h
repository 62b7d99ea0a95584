// SPDX-License-Identifier: Apache-2.0
// For tests of the disk store on disks that lie, lose, fail and hang: a disk, and stores of two groups on it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "loci/memory/disk/disk_testing.h"
#include "loci/memory/disk/faulty_disk_testing.h"
#include "loci/memory/disk/open_disk_store.h"

namespace loci {

class DiskFaults : public ::testing::Test {
 protected:
  static DiskStoreOptions options(std::size_t directories = 1) {
    DiskStoreOptions all;
    for (std::size_t i = 0; i < directories; ++i) {
      all.directories.push_back({"disk" + std::to_string(i), 400'000});
    }
    all.groups = {{.layers = 4, .layer_slice_bytes = 4000}, {.layers = 2, .layer_slice_bytes = 4096}};
    return all;
  }
  std::unique_ptr<DiskStore> open(const DiskStoreOptions& with) {
    auto store = open_disk_store(with, disk_.folders(), clock_);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return std::move(store).value();
  }
  std::unique_ptr<DiskStore> open() { return open(options()); }
  Status write(DiskStore& store, std::uint32_t group, std::uint32_t slot, std::uint64_t seed) {
    return write_one(store, group, SlotId(slot), test_entry(seed), test_bytes(seed, store.groups()[group]));
  }
  static FaultyDisk::Judge only(bool writes, std::string_view file, FaultAnswer answer) {
    return [=](const FaultyOperation& one) {
      return one.write == writes && one.file.find(file) != std::string::npos ? answer : FaultAnswer{};
    };
  }

  FaultyDisk disk_;
  SystemClock clock_;
};

}  // namespace loci
