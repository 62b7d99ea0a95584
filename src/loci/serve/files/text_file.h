// SPDX-License-Identifier: Apache-2.0
// Files that an operator writes, whole.
#pragma once

#include <cstddef>
#include <string>

#include "loci/base/status.h"

namespace loci {

// Errors: kNotFound; kUnavailable, also of a directory. The message names the path and says why. Thread-safe.
Result<std::string> read_text_file(const std::string& path);

// The same of a file that is read again while a server runs: what has come to its place may not hold up the
// thread that reads it, nor fill the memory. Errors: the same, and kUnavailable if it is no ordinary file (a
// pipe, say) or has more than kReadAgainBytesMax.
inline constexpr std::size_t kReadAgainBytesMax = 64 << 20;
Result<std::string> read_text_file_again(const std::string& path);

// What is left to read of an open file, such as standard input; errors call it `name`.
// Errors: kUnavailable. Thread-safe.
Result<std::string> read_text(int descriptor, const std::string& name);

}  // namespace loci
