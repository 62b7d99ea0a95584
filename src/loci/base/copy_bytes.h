// SPDX-License-Identifier: Apache-2.0
// Copies of state, past the processor's caches where there is more of it than they hold.
//
// An ordinary copy to memory that no cache has reads that memory first, a line at a time, and pushes out of
// the caches what is used next. A copy that bypasses them does neither, but whoever reads the bytes soon
// afterwards waits for memory. So it pays for many bytes, of which the first would be pushed out by the last
// before anybody reads them, and for bytes that nobody reads for long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace loci {

enum class CacheUse : std::uint8_t { kFill, kBypass };

// For so many bytes that are written before the first of them are read.
constexpr CacheUse cache_use_of(std::uint64_t bytes) {
  constexpr std::uint64_t kCachedBytesMax = std::uint64_t{32} << 20;
  return bytes > kCachedBytesMax ? CacheUse::kBypass : CacheUse::kFill;
}

// Both have the same size, and nothing in common. Other threads see the bytes by what synchronises ordinary
// writes. Where the instructions for it are missing (on others than x86) nothing is bypassed.
void copy_bytes(std::span<std::byte> to, std::span<const std::byte> from, CacheUse use);

}  // namespace loci
