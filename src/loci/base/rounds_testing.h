// SPDX-License-Identifier: Apache-2.0
// How often a test repeats rounds that differ only by chance or by a counter. A sanitizer finds an error the
// first time that a path is taken, and makes each round 3 to 10 times as slow, as an emulator does. So builds
// with them run fewer rounds, and the build without them runs all.
#pragma once

#include <cstdint>

namespace loci {

#ifdef LOCI_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

#ifdef LOCI_EMULATED
inline constexpr bool kSlowed = true;
#else
inline constexpr bool kSlowed = kSanitized;
#endif

// `full` rounds; in slow builds one of so many (where a round takes many paths many times, as a random world
// does, more of them can go), but at least one.
constexpr std::uint64_t test_rounds(std::uint64_t full, std::uint64_t one_of = 5) {
  return kSlowed ? (full + one_of - 1) / one_of : full;
}

}  // namespace loci
