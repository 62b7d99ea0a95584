// SPDX-License-Identifier: Apache-2.0
#include "loci/base/copy_bytes.h"

#include <algorithm>
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "loci/base/check.h"

namespace loci {
namespace {

#if defined(__x86_64__)
constexpr std::size_t kLineBytes = 64;

// Whole lines: half of one would be read after all.
void copy_lines(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
  _mm_sfence();  // these writes are in no order with others
}
#endif

}  // namespace

void copy_bytes(std::span<std::byte> to, std::span<const std::byte> from, CacheUse use) {
  LOCI_CHECK(to.size() == from.size(), "a copy is as large as what is copied");
  if (from.empty()) return;
#if defined(__x86_64__)
  if (use == CacheUse::kBypass) {
    const std::size_t into_line = reinterpret_cast<std::uintptr_t>(to.data()) % kLineBytes;
    const std::size_t begin = std::min((kLineBytes - into_line) % kLineBytes, to.size());
    const std::size_t lines = (to.size() - begin) / kLineBytes * kLineBytes;
    std::memcpy(to.data(), from.data(), begin);
    copy_lines(to.data() + begin, from.data() + begin, lines);
    to = to.subspan(begin + lines);
    from = from.subspan(begin + lines);
    if (from.empty()) return;
  }
#endif
  std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace loci
