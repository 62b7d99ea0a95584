// SPDX-License-Identifier: Apache-2.0
// What --disk can be told: `none`, or directories, each with the size of its files.
#pragma once

#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/server/disk_place.h"

namespace loci {

// "DIR" or "DIR:SIZE". Errors: kInvalidArgument, without a field.
Result<DiskPlace> parse_disk_flag(const std::string& text);

// All values of the flag; `none`, and no value at all: no disk tier. Errors as above, and `none` beside
// others.
Result<std::vector<DiskPlace>> parse_disk_flags(const std::vector<std::string>& texts);

// Texts that give the same folders.
std::vector<std::string> disk_flags(const std::vector<DiskPlace>& folders);

}  // namespace loci
