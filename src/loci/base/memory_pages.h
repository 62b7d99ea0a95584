// SPDX-License-Identifier: Apache-2.0
// The pages of the machine's memory. Thread-safe.
#pragma once

#include <cstdint>

namespace loci {

// Of a page: 4 KiB, or 16 or 64 KiB on some Arm systems.
std::uint64_t page_bytes();
inline constexpr std::uint64_t kHugePageBytes = 2u << 20;
// All that the machine has, in bytes, whoever uses it.
std::uint64_t machine_memory();
// Those in [data, data + bytes) that lie there as a whole.
struct WholePages {
  std::uintptr_t begin = 0;
  std::uint64_t bytes = 0;  // 0: there are none
};
WholePages whole_pages(const void* data, std::uint64_t bytes);
// Gives them back to the system: memory reads as zeros afterwards, a file's pages are read again.
void give_back(const WholePages& pages);

}  // namespace loci
