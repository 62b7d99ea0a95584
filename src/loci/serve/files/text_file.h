// SPDX-License-Identifier: Apache-2.0
// Files that an operator writes, whole.
#pragma once

#include <string>

#include "loci/base/status.h"

namespace loci {

// Errors: kNotFound; kUnavailable, also of a directory. The message names the path and says why. Thread-safe.
Result<std::string> read_text_file(const std::string& path);

// What is left to read of an open file, such as standard input; errors call it `name`.
// Errors: kUnavailable. Thread-safe.
Result<std::string> read_text(int descriptor, const std::string& name);

}  // namespace loci
