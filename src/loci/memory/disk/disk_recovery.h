// SPDX-License-Identifier: Apache-2.0
// Reads all records after a start: headers and holes, in big sequential reads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "loci/memory/block_entry.h"
#include "loci/memory/disk/disk_counters.h"
#include "loci/memory/disk/disk_files.h"

namespace loci {

struct RecordScan {
  std::uint64_t valid = 0, damaged = 0, foreign = 0;
  std::uint64_t read_errors = 0;  // long reads that the disk refused
  std::uint64_t unread = 0;       // records that it refused when it was asked again: there may be entries
};

// Reads a directory's file of records. `first` is its first row's, whose slot is the directory's number: row
// i is slot i * directories + directory. `found` is given what is valid, in that order; `stop` is asked
// between reads. Rows behind the file's end are empty.
RecordScan scan_records(DiskFile& file, const DiskLayout& layout, const RecordPlace& first,
                        const std::function<bool()>& stop,
                        const std::function<void(const RecoveredEntry&)>& found);

struct RecoveryScan {
  RecordScan counts;
  std::vector<RecoveredEntry> entries;  // as they stand in the files
};

// All records of the set.
RecoveryScan scan_files(const DiskFileSet& files, const std::function<bool()>& stop);

// The order in which to hand entries over: parents before children. Of several with one key in a group (or
// among the holes) the one that was used last comes first: the others are of no use, but whoever is not told
// of them does not forget them.
std::vector<std::uint32_t> recovery_order(const std::vector<RecoveredEntry>& entries);

// Gives each entry the latest date among the entries of its block and of all blocks below it. So a block is
// never dropped for its age while one that follows it is kept. `order`: recovery_order()'s. O(entries).
void date_by_youngest(std::vector<RecoveredEntry>& entries, const std::vector<std::uint32_t>& order);

// Of a recovery_order(), where some records could not be read, what can be handed over all the same: entries
// to which others lead from a root on, but no holes that lead to nothing. The rest may hang from what was not
// read, or lead to it, and whoever is handed it has it forgotten. O(entries).
std::vector<std::uint32_t> joined_entries(const std::vector<RecoveredEntry>& entries,
                                          const std::vector<std::uint32_t>& order);

}  // namespace loci
