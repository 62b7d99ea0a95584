#include "loci/engine/host_tier.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "loci/base/check.h"
#include "loci/base/units.h"

namespace loci {
namespace {

std::uint64_t machine_memory() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

void HostTier::Unmap::operator()(std::byte* memory) const { munmap(memory, bytes); }

Result<HostTier> HostTier::make(const std::vector<LayerGroup>& groups,
                                const std::vector<std::uint32_t>& slots) {
  LOCI_CHECK(slots.empty() || slots.size() == groups.size(), "slots of each group");
  HostTier tier;
  for (std::size_t group = 0; group < slots.size(); ++group) {
    Pool pool{.slots = slots[group],
              .layers = static_cast<std::uint32_t>(groups[group].layers.size()),
              .slice_bytes = groups[group].layer_slice_bytes,
              .memory = {}};
    const std::uint64_t bytes = groups[group].block_bytes * slots[group];
    if (bytes > 0) {
      void* memory = MAP_FAILED;
      if (bytes <= machine_memory())
        memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) {
        return resource_exhausted(
            fmt::format("a host tier of {} blocks needs {}, and this machine has {} in all: ask for less",
                        slots[group], format_bytes(bytes), format_bytes(machine_memory())),
            "--host-memory");
      }
      madvise(memory, bytes, MADV_HUGEPAGE);  // fewer page faults, where the system has them
      pool.memory = {static_cast<std::byte*>(memory), Unmap{bytes}};
    }
    tier.pools_.push_back(std::move(pool));
  }
  return tier;
}

std::span<std::byte> HostTier::slice(std::uint32_t group, SlotId slot, std::uint32_t index) const {
  LOCI_CHECK(group < pools_.size() && slot.value < pools_[group].slots && index < pools_[group].layers,
             "a slice outside the host tier");
  const Pool& pool = pools_[group];
  const std::uint64_t place = std::uint64_t{slot.value} * pool.layers + index;
  return {pool.memory.get() + place * pool.slice_bytes, pool.slice_bytes};
}

}  // namespace loci
