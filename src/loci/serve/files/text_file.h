// SPDX-License-Identifier: Apache-2.0
// Files that an operator writes, whole. All of these: thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

// Errors: kNotFound; kUnavailable. The message names the path.
Result<std::string> read_text_file(const std::string& path);
// Replaces the file's content in one step. The new content is on the disk when this returns. A new file has
// mode 0600. Errors: kUnavailable.
Status replace_text_file(const std::string& path, std::string_view text);

}  // namespace loci
