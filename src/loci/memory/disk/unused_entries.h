// SPDX-License-Identifier: Apache-2.0
// Which of a model's entries nobody has used for too long. A block is as young as the youngest block below
// it, as at a start of the model's own server (date_by_youngest()), so none goes while a later block of its
// sequence stays. An example, of a limit that what was used before 100 has passed:
//
//     A (used at 90) - B (at 120)    both stay: B is young, and A leads to it
//     C (at 90) - D (at 80)          both go
//     a hole (at 90) - E (at 110)    both stay
//
// About 150 bytes of memory for each entry while it decides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "loci/memory/block_entry.h"
#include "loci/memory/disk/disk_unused_folder.h"

namespace loci {

// Thread-compatible.
class UnusedEntries {
 public:
  // What was used last before `before` (milliseconds since 1970) has been unused for too long.
  explicit UnusedEntries(std::int64_t before) : before_(before) {}

  // `folder`: any number, of the folder that has the entry. O(1).
  void add(const RecoveredEntry& one, std::size_t folder);
  // All that go, by folder, of `folders`. Incomplete if a stop is asked for. Once, after the last add().
  // O(entries).
  std::vector<std::vector<UnusedEntry>> take(std::size_t folders, const StopAsked& stop);

 private:
  struct Block {
    ChainKey above;
    bool is_first = false;  // it hangs from a root
    bool stays = false;     // it is young, or leads to one that is
  };
  struct Old {
    UnusedEntry entry;
    std::size_t folder = 0;
  };

  // All blocks that lead to this one stay, up to the first that is known to.
  void keep_above(const Block& block);

  const std::int64_t before_;
  std::unordered_map<ChainKey, Block, ChainKeyHash> blocks_;
  std::vector<Old> old_;
};

}  // namespace loci
