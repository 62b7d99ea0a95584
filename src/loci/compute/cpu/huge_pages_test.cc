// SPDX-License-Identifier: Apache-2.0
// Of what the system has granted as huge pages, as it says itself (/proc/self/smaps).
#include "loci/compute/cpu/huge_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "loci/base/eventually_testing.h"
#include "loci/compute/cpu/block_storage.h"
#include "loci/compute/cpu/buffer.h"

namespace loci::cpu {
namespace {

// Bytes on huge pages of the mappings that have a part of [memory, memory + bytes), and may have more.
std::uint64_t huge_bytes(const std::uint8_t* memory, std::uint64_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  std::ifstream smaps("/proc/self/smaps");
  std::uint64_t huge = 0;
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long long from = 0, to = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &from, &to) == 2)
      inside = from < begin + bytes && begin < to;
    else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %llu kB", &kib) == 1)
      huge += kib << 10;
  }
  return huge;
}

class HugePagesTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 8 * kHugePageBytes;

  void SetUp() override {
    Result<Buffer> made = Buffer::allocate(kBytes - 4096, "a test");
    ASSERT_TRUE(made.ok());
    buffer = std::move(*made);
    ASSERT_EQ(buffer.size(), kBytes);
    write(0, kBytes);
    whole = huge();
    if (whole < kBytes) GTEST_SKIP() << "this system grants no huge pages now";
  }
  void write(std::uint64_t begin, std::uint64_t bytes) {
    for (std::uint64_t i = begin; i < begin + bytes; ++i) buffer.data()[i] = byte_at(i);
  }
  static std::uint8_t byte_at(std::uint64_t i) { return static_cast<std::uint8_t>(i * 31 + i / 4096 + 1); }
  std::uint64_t huge() const { return huge_bytes(buffer.data(), kBytes); }
  // How many are joined until so many are left. (The system may have one in hand just then, and joins it
  // another time.)
  static std::uint64_t joined_until(HugePages& pages, std::uint64_t split) {
    std::uint64_t joined = pages.join_split();
    for (int i = 0; i < 1000 && pages.split() > split; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      joined += pages.join_split();
    }
    return joined;
  }

  Buffer buffer;
  std::uint64_t whole = 0;  // huge() while nothing was given back
};

TEST_F(HugePagesTest, WhatIsWrittenAgainIsJoined) {
  HugePages pages(buffer.data(), kBytes);
  EXPECT_EQ(pages.join_split(), 0u);
  // From the middle of the second to that of the third.
  const std::uint64_t begin = kHugePageBytes + (700u << 10);
  buffer.give_back(begin, kHugePageBytes);
  pages.given_back(begin, kHugePageBytes);
  EXPECT_EQ(pages.split(), 2u);
  EXPECT_EQ(huge(), whole - 2 * kHugePageBytes);

  write(begin, kHugePageBytes - 4096);  // the last page has no memory yet
  EXPECT_EQ(huge(), whole - 2 * kHugePageBytes) << "it has come back on small pages";
  EXPECT_EQ(joined_until(pages, 1), 1u);
  EXPECT_EQ(pages.join_split(), 0u) << "what lacks a page is not joined: that would take more memory";
  EXPECT_EQ(pages.split(), 1u);
  write(begin, kHugePageBytes);
  EXPECT_EQ(joined_until(pages, 0), 1u);
  EXPECT_EQ(pages.split(), 0u);
  EXPECT_EQ(huge(), whole);
  for (std::uint64_t i = 0; i < kBytes; ++i) ASSERT_EQ(buffer.data()[i], byte_at(i)) << i;
}

TEST_F(HugePagesTest, OnlyWholeOnesAreKnown) {
  HugePages pages(buffer.data() + 4096, kBytes - 8192);  // the first and the last are not its own
  pages.given_back(0, kBytes - 8192);
  EXPECT_EQ(pages.split(), kBytes / kHugePageBytes - 2);
  pages.given_back(0, 4096);
  pages.given_back(5, 0);
  EXPECT_EQ(pages.split(), kBytes / kHugePageBytes - 2);
  EXPECT_EQ(HugePages(buffer.data() + 4096, kHugePageBytes).split(), 0u);
}

// The pool of a server: slots of 1.5 MiB, of which one is given back and used again.
TEST_F(HugePagesTest, APoolOfBlocksIsWholeAgain) {
  LayerGroup group;
  group.layers = {0};
  const StateLayout layout(StateType::kF16, 8, 128);
  const std::uint64_t slice = layout.slice_bytes();
  group.layers.clear();
  for (std::uint32_t layer = 0; layer < (3u << 19) / slice; ++layer) group.layers.push_back(layer);
  BlockStorage storage({group}, layout);
  constexpr std::uint32_t kSlots = 8;
  ASSERT_TRUE(storage.allocate(0, kSlots).ok());
  const std::uint64_t block = storage.groups()[0].block_bytes;
  ASSERT_EQ(block, 3u << 19);
  const std::uint64_t bytes = (kSlots * block + 256 + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  std::uint8_t* const memory = storage.slice(SlotId(0), 0);
  std::memset(memory, 1, kSlots * block);
  const std::uint64_t before = huge_bytes(memory, bytes);
  if (before < 5 * kHugePageBytes) {
    const Result<Buffer> other = Buffer::allocate(bytes, "a test");
    ASSERT_TRUE(other.ok());
    std::memset(other->data(), 1, bytes);
    if (huge_bytes(other->data(), bytes) < bytes) GTEST_SKIP() << "this system grants no more huge pages now";
    FAIL() << "a pool lies on " << before << " bytes of huge pages, though the system grants them";
  }
  storage.give_back(0, SlotId(2));
  EXPECT_LT(huge_bytes(memory, bytes), before);
  std::memset(storage.slice(SlotId(2), 0), 2, block);
  EXPECT_TRUE(eventually([&] { return huge_bytes(memory, bytes) == before; }));
  EXPECT_EQ(memory[2 * block - 1], 1);
  EXPECT_EQ(memory[2 * block], 2);
}

}  // namespace
}  // namespace loci::cpu
