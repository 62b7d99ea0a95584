// SPDX-License-Identifier: Apache-2.0
// How fast a directory's disk reads and writes blocks of state: plain file I/O past the page cache, several
// requests at once, as the disk store does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/policy/cost_model.h"

namespace loci {

struct DiskMeasureOptions {
  std::string directory;                                // made if it is not there
  std::uint64_t request_bytes = 1 << 20;                // about a read's, of the disk store
  std::vector<std::uint64_t> read_sizes;                // of others, whose rates are measured too
  std::uint64_t file_bytes = std::uint64_t{256} << 20;  // of the file, which is gone afterwards
  Nanos time_limit = 4 * kNanosPerSecond;               // of writing, and of reading in each size
  std::function<bool()> stop;  // asked again and again; true: it ends with kCancelled. Empty: never
};

struct DiskMeasurement {
  LinkCost read;
  LinkCost write;
  std::vector<ReadRate> reads;  // by size, ascending
  Nanos charge = 0;             // of computing, that reading and verifying a MiB takes away
  bool direct = true;           // false: the file system refuses O_DIRECT, and the page cache may have helped
};

// Errors: kCancelled (it was stopped), kUnavailable (the file can't be made, or fails), kResourceExhausted
// (less than four times the file's size is free); the message names the directory.
Result<DiskMeasurement> measure_disk(const DiskMeasureOptions& options);

}  // namespace loci
