// SPDX-License-Identifier: Apache-2.0
// What a disk store counts; written by its threads, read by anyone.
#pragma once

#include <atomic>
#include <cstdint>

namespace loci {

struct DiskCounters {
  std::atomic<std::uint64_t> reads{0}, read_bytes{0}, read_errors{0};
  std::atomic<std::uint64_t> writes{0}, write_bytes{0}, write_errors{0};
  std::atomic<std::uint64_t> damaged{0}, foreign{0};
  std::atomic<std::uint64_t> uncleared{0};  // slots that owe a clear now (disk_clears.h)
};

}  // namespace loci
