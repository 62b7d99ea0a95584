// SPDX-License-Identifier: Apache-2.0
// Files that outlive a loss of power as soon as a call returns. All of these: thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

// What a write that failed with this errno is: kResourceExhausted where the disk, a quota or the size that a
// file may have is full, else kUnavailable.
StatusCode code_of_failed_write(int error);

// Replaces the file's content in one step: whatever ends the process or the machine, it has the old one or
// the new one. A new file has mode 0600. Errors: as of a write.
Status replace_file(const std::string& path, std::string_view content);

// A file's name outlives a loss of power once its folder is on the disk. False: it could not be synchronised.
bool sync_folder_of(const std::string& path);

}  // namespace loci
