// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/mover/host_tier.h"

#include <fmt/format.h>

#include <utility>

#include "loci/base/check.h"
#include "loci/base/units.h"

namespace loci {

Result<HostTier> HostTier::make(Backend& backend, const std::vector<std::uint32_t>& slots) {
  const std::vector<LayerGroup>& groups = backend.info().groups;
  LOCI_CHECK(slots.empty() || slots.size() == groups.size(), "slots of each group");
  HostTier tier;
  for (std::size_t group = 0; group < slots.size(); ++group) {
    Pool pool{.slots = slots[group],
              .layers = static_cast<std::uint32_t>(groups[group].layers.size()),
              .slice_bytes = groups[group].layer_slice_bytes,
              .memory = {}};
    const std::uint64_t bytes = groups[group].block_bytes * slots[group];
    Result<HostMemory> memory = backend.allocate_host(bytes);
    if (!memory.ok()) {
      return resource_exhausted(fmt::format("a host tier of {} blocks needs {}: {}; ask for less",
                                            slots[group], format_bytes(bytes), memory.status().message()),
                                "host_memory");
    }
    pool.memory = std::move(memory).value();
    tier.pools_.push_back(std::move(pool));
  }
  return tier;
}

std::span<std::byte> HostTier::slices(std::uint32_t group, SlotId slot, LayerRange layers) const {
  LOCI_CHECK(group < pools_.size() && slot.value < pools_[group].slots && layers.begin <= layers.end &&
                 layers.end <= pools_[group].layers,
             "layers outside the host tier");
  const Pool& pool = pools_[group];
  const std::uint64_t place = std::uint64_t{slot.value} * pool.layers + layers.begin;
  return {pool.memory.data() + place * pool.slice_bytes, (layers.end - layers.begin) * pool.slice_bytes};
}

}  // namespace loci
