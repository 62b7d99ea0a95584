// SPDX-License-Identifier: Apache-2.0
#include "loci/base/memory_pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace loci {

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::uint64_t machine_memory() { return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes(); }

WholePages whole_pages(const void* data, std::uint64_t bytes) {
  const std::uint64_t page = page_bytes();
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = (address + page - 1) / page * page;
  const std::uintptr_t end = (address + bytes) / page * page;
  return begin < end ? WholePages{.begin = begin, .bytes = end - begin} : WholePages();
}

void give_back(const WholePages& pages) {
  if (pages.bytes > 0) madvise(reinterpret_cast<void*>(pages.begin), pages.bytes, MADV_DONTNEED);
}

}  // namespace loci
