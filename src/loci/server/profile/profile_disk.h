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
  std::string directory;                                // created if it does not exist
  std::uint64_t request_bytes = 1 << 20;                // about the size of the disk store's reads
  std::vector<std::uint64_t> read_sizes;                // other sizes of reads to measure
  std::uint64_t file_bytes = std::uint64_t{256} << 20;  // of the test file, which is deleted afterwards
  Nanos time_limit = 4 * kNanosPerSecond;               // of writing, and of reading in each size
  std::function<bool()> stop;  // asked often; true ends the measurement with kCancelled. May be empty
};

struct DiskMeasurement {
  LinkCost read;
  LinkCost write;
  std::vector<ReadRate> reads;  // by size, ascending
  Nanos charge = 0;             // time of computing that is lost to reading and verifying a MiB
  bool direct = true;           // false: the file system refused O_DIRECT, so the page cache may have helped
};

// Errors: kCancelled (it was stopped), kUnavailable (the file cannot be made, read or written),
// kResourceExhausted (less than four times the file's size is free); the message names the directory.
Result<DiskMeasurement> measure_disk(const DiskMeasureOptions& options);

}  // namespace loci
