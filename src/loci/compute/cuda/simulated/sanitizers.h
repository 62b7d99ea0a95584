// SPDX-License-Identifier: Apache-2.0
// Tells the address sanitizer which stack of the simulated device runs, and which memory nobody may touch.
// Does nothing in other builds.
#pragma once

#include <cstddef>

// The macro by which g++ reports a sanitizer.
#if !defined(__SANITIZE_ADDRESS__) && defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// For functions that a fiber enters and never leaves. It keeps sanitizers from recording such calls, which
// would never end: poisoned frames of the address sanitizer, the call stack of the thread sanitizer.
#define LOCI_NEVER_LEFT __attribute__((no_sanitize("address", "thread"), noinline))

namespace loci::cuda::simulated {

#ifdef __SANITIZE_ADDRESS__

inline void forbid(const void* at, std::size_t bytes) { ASAN_POISON_MEMORY_REGION(at, bytes); }
inline void allow(const void* at, std::size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(at, bytes); }

// Called around every switch of stacks. leaving() is called before it, on the old stack, and names the new
// one. arrived() is called after it, on the new stack, with the value that leaving() gave when that stack was
// left (nullptr: it never was). It reports which stack was left.
inline void leaving(void** left, const void* bottom, std::size_t bytes) {
  __sanitizer_start_switch_fiber(left, bottom, bytes);
}
inline void arrived(void* left, const void** from, std::size_t* from_bytes) {
  __sanitizer_finish_switch_fiber(left, from, from_bytes);
}

#else

inline void forbid(const void*, std::size_t) {}
inline void allow(const void*, std::size_t) {}
inline void leaving(void**, const void*, std::size_t) {}
inline void arrived(void*, const void**, std::size_t*) {}

#endif

}  // namespace loci::cuda::simulated
