// SPDX-License-Identifier: Apache-2.0
// Pulls a repo's files. Several connections fetch what is missing; a file that was interrupted is continued.
// Each file is checked against the registry's hash, and gets its name only when it is whole.
#pragma once

#include <string>

#include "loci/base/status.h"
#include "loci/cli/pull/http_client.h"
#include "loci/cli/pull/progress.h"
#include "loci/cli/pull/repo_reference.h"

namespace loci {

struct PullOptions {
  std::string models;  // models_folder()
  HubAccess access;
  unsigned connections = 4;
  // Takes the lines that tell what is done. Empty: standard error, with a bar where that is a terminal.
  PullProgress::Say say;
};

// Returns the file or folder that serves the reference.
// Errors: kNotFound, kInvalidArgument (no access), kResourceExhausted (no room on the disk), kUnavailable
// (no connection, or another process pulls it), kDataLoss (a hash or a size differs: the file was removed).
Result<std::string> pull(const RepoReference& repo, const PullOptions& options);

}  // namespace loci
