// SPDX-License-Identifier: Apache-2.0
#include "loci/base/host_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "loci/base/memory_pages.h"
#include "loci/base/units.h"

namespace loci {

Result<HostMemory> HostMemory::map(std::uint64_t bytes, Pages pages) {
  if (bytes == 0) return HostMemory();
  void* memory = MAP_FAILED;
  if (bytes <= machine_memory())
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return resource_exhausted(
        fmt::format("this machine has {} of memory in all", format_bytes(machine_memory())));
  }
  madvise(memory, bytes, pages == Pages::kLarge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return HostMemory(static_cast<std::byte*>(memory), bytes, [memory, bytes] { munmap(memory, bytes); });
}

void HostMemory::give_back_from(std::uint64_t begin) {
  const std::uint64_t page = page_bytes();
  const std::uint64_t end = std::min(given_back_from_, (bytes_ + page - 1) / page * page);
  given_back_from_ = (begin + page - 1) / page * page;
  if (given_back_from_ < end) madvise(data_ + given_back_from_, end - given_back_from_, MADV_DONTNEED);
}

}  // namespace loci
