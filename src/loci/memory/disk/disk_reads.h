// SPDX-License-Identifier: Apache-2.0
// Reading entries: each item's header first, verified, then its slices in chunks of adjacent layers, each
// verified against the header before the sink sees it. Belongs to the store's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "loci/memory/disk/disk_counters.h"
#include "loci/memory/disk/disk_files.h"
#include "loci/memory/disk/disk_queue.h"
#include "loci/memory/disk/disk_store.h"

namespace loci {

// Layers that one operation reads or writes; `wanted` 0: the default.
std::uint32_t layers_of_chunk(const DiskLayout& layout, std::uint32_t group, std::uint32_t wanted);

// Pushes the operations of all items: headers, then everyone's first layers, then the next ones. `files`
// and `counters` must outlive them.
void push_reads(const DiskFileSet& files, DiskCounters& counters, DiskQueue& queue,
                const std::vector<BlockRead>& items, const std::vector<std::uint8_t>& gone,
                std::uint32_t layers_at_once, std::shared_ptr<BlockReadSink> sink);

}  // namespace loci
