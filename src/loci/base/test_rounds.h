// SPDX-License-Identifier: Apache-2.0
// How often a test repeats what only chance or counting makes different. A sanitizer finds what is wrong on a
// path when the path is first taken, and makes each round 3 to 10 times as slow, as an emulator does; the
// build without them runs all rounds.
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

// `full` rounds, or a fifth of them where they are slow, at least one.
constexpr std::uint64_t test_rounds(std::uint64_t full) { return kSlowed ? (full + 4) / 5 : full; }

}  // namespace loci
