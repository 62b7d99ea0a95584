// SPDX-License-Identifier: Apache-2.0
// Files that an operator writes, whole.
#pragma once

#include <cstddef>
#include <string>

#include "loci/base/status.h"

namespace loci {

// Whoever names a model's file by mistake must not have the memory filled with it.
inline constexpr std::size_t kTextFileBytesMax = 64 << 20;

// Errors: kNotFound; kUnavailable, also of a directory, and of more bytes. The message names the path and
// says why. Thread-safe.
Result<std::string> read_text_file(const std::string& path, std::size_t bytes_max = kTextFileBytesMax);

// The same of a file that is read again while a server runs: what has come to its place may not hold up the
// thread that reads it. Errors: the same, and kUnavailable if it is no ordinary file (a pipe, say).
Result<std::string> read_text_file_again(const std::string& path);

// What is left to read of an open file, such as standard input; errors call it `name`.
// Errors: kUnavailable. Thread-safe.
Result<std::string> read_text(int descriptor, const std::string& name);

}  // namespace loci
