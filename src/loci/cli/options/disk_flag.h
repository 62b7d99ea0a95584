// SPDX-License-Identifier: Apache-2.0
// What --disk can be told: `none`, or directories, each with the size of its files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loci/base/status.h"

namespace loci {

struct DiskFlag {
  std::string path;
  std::uint64_t bytes = 0;  // 0: a tenth of what is free, up to 16 GiB
};

// "DIR" or "DIR:SIZE". Errors: kInvalidArgument, without a field.
Result<DiskFlag> parse_disk_flag(const std::string& text);

// All values of the flag; empty: no disk tier. Errors as above, and `none` beside others.
Result<std::vector<DiskFlag>> parse_disk_flags(const std::vector<std::string>& texts);

}  // namespace loci
