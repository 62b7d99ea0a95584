// SPDX-License-Identifier: Apache-2.0
#include "loci/base/copy_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace loci {
namespace {

// From any place to any place of a line, with ends inside of lines.
TEST(CopyBytes, WritesTheseBytesAndNoOthers) {
  constexpr std::size_t kMargin = 64;
  std::vector<std::byte> from(700);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 / 7 | 1);
  for (const CacheUse use : {CacheUse::kFill, CacheUse::kBypass}) {
    for (const std::size_t bytes : {0, 1, 15, 16, 63, 64, 65, 127, 128, 200, 576}) {
      for (std::size_t place = 0; place < 64; ++place) {
        std::vector<std::byte> to(kMargin + place + bytes + kMargin);
        const std::size_t at = kMargin + place, source = place * 5 % 64;
        copy_bytes(std::span(to).subspan(at, bytes), std::span(from).subspan(source, bytes), use);
        std::vector<std::byte> expected(to.size());
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(source), bytes,
                    expected.begin() + static_cast<std::ptrdiff_t>(at));
        ASSERT_EQ(to, expected) << bytes << " bytes at " << place;
      }
    }
  }
}

TEST(CopyBytes, ManyBytesBypassTheCaches) {
  EXPECT_EQ(cache_use_of(0), CacheUse::kFill);
  EXPECT_EQ(cache_use_of(std::uint64_t{22} << 20), CacheUse::kFill);
  EXPECT_EQ(cache_use_of(std::uint64_t{86} << 20), CacheUse::kBypass);
}

}  // namespace
}  // namespace loci
