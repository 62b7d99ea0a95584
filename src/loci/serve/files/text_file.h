// SPDX-License-Identifier: Apache-2.0
// Files that an operator writes, whole.
#pragma once

#include <string>

#include "loci/base/status.h"

namespace loci {

// Errors: kNotFound; kUnavailable. The message names the path. Thread-safe.
Result<std::string> read_text_file(const std::string& path);

}  // namespace loci
