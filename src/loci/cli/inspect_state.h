// SPDX-License-Identifier: Apache-2.0
// `loci inspect DIR`: what is in a directory of a disk store (kept state), for people. Only reads, and takes
// no lock; a server may be using it.
#pragma once

#include <string>

#include "loci/base/status.h"

namespace loci {

// Whether the directory holds a disk store's files.
bool is_state_directory(const std::string& path);

// Shape, model, and what its entries are, by group of layers. Errors: as survey_disk_store().
Result<std::string> inspect_state(const std::string& path);

}  // namespace loci
