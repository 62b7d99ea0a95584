// SPDX-License-Identifier: Apache-2.0
// How a store's readers share a call of BlockSource::read().
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "loci/memory/block_source.h"

namespace loci {

// At most `readers` jobs, of items in turn: each reader then has some of the blocks that come first. `Item`
// has the item's place in the call, its key and its group.
template <class Item>
std::vector<std::vector<Item>> divide_reads(std::span<const BlockRead> items, std::size_t readers) {
  std::vector<std::vector<Item>> jobs(std::min(items.size(), readers));
  for (std::size_t i = 0; i < items.size(); ++i)
    jobs[i % jobs.size()].push_back({.place = i, .key = items[i].key, .group = items[i].group});
  return jobs;
}

}  // namespace loci
