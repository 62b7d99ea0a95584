// SPDX-License-Identifier: Apache-2.0
// Files that outlive a loss of power as soon as a call returns. All of these: thread-safe.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "loci/base/descriptor.h"
#include "loci/base/status.h"

namespace loci {

// What a write that failed with this errno is: kResourceExhausted where the disk, a quota or the size that a
// file may have is full, else kUnavailable.
StatusCode code_of_failed_write(int error);

// Where the path leads: links are followed, also to a file that is not there yet.
std::string behind_links(const std::string& path);

// Whether the path leads to what can only be written to, not replaced: a device, a pipe, a folder.
bool is_no_file(const std::string& path);

// Replaces the content of the file that the path leads to, through links too, in one step: whatever ends the
// process or the machine, it has the old one or the new one. It keeps its mode; a new file has this one, less
// what the process masks. Errors: as of a write; kUnavailable if the path leads to no file.
Status replace_file(const std::string& path, std::string_view content, mode_t new_mode = 0600);

// Who reads a file, changes what it read and replaces the file holds this from before it reads, so that no
// change of another process gets lost. Waits for whoever has it; closing the descriptor ends it. The lock is
// a file PATH.lock beside the one that the path leads to, and stays. Errors: kUnavailable, also if the path
// leads to no file.
Result<Descriptor> lock_changes(const std::string& path);

// A file's name outlives a loss of power once its folder is on the disk. False: it could not be synchronised.
bool sync_folder_of(const std::string& path);

}  // namespace loci
