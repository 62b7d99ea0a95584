// SPDX-License-Identifier: Apache-2.0
// A directory of the disk tier.
#pragma once

#include <cstdint>
#include <string>

namespace loci {

struct DiskPlace {
  std::string path;
  std::uint64_t bytes = 0;  // for all models' state together; 0: a tenth of what is free, up to 16 GiB
};

}  // namespace loci
