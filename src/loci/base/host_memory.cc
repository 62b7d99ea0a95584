// SPDX-License-Identifier: Apache-2.0
#include "loci/base/host_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loci/base/units.h"

namespace loci {
namespace {

std::uint64_t machine_memory() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

Result<HostMemory> HostMemory::map(std::uint64_t bytes) {
  if (bytes == 0) return HostMemory();
  void* memory = MAP_FAILED;
  if (bytes <= machine_memory())
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return resource_exhausted(
        fmt::format("this machine has {} of memory in all", format_bytes(machine_memory())));
  }
  madvise(memory, bytes, MADV_HUGEPAGE);  // fewer page faults, where the system has them
  return HostMemory(static_cast<std::byte*>(memory), bytes, [memory, bytes] { munmap(memory, bytes); });
}

}  // namespace loci
