// SPDX-License-Identifier: Apache-2.0
#include "loci/base/memory_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>

namespace loci {
namespace {

TEST(MemoryPages, OnlyWholeOnesAreGivenBack) {
  const std::uint64_t page = page_bytes();
  void* mapped = mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const memory = static_cast<std::uint8_t*>(mapped);
  for (std::uint64_t i = 0; i < 4 * page; ++i) memory[i] = 1;
  EXPECT_EQ(whole_pages(memory + 1, 2 * page - 2).bytes, 0u);
  EXPECT_EQ(whole_pages(memory + 1, 0).bytes, 0u);
  const WholePages inner = whole_pages(memory + 1, 3 * page);
  EXPECT_EQ(inner.begin, reinterpret_cast<std::uintptr_t>(memory) + page);
  EXPECT_EQ(inner.bytes, 2 * page);
  give_back(inner);
  EXPECT_EQ(memory[page - 1], 1);
  EXPECT_EQ(memory[page], 0);
  EXPECT_EQ(memory[3 * page - 1], 0);
  EXPECT_EQ(memory[3 * page], 1);
  munmap(mapped, 4 * page);
}

}  // namespace
}  // namespace loci
