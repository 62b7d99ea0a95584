// SPDX-License-Identifier: Apache-2.0
// One file of a repo on its way to the disk.
#pragma once

#include <cstdint>
#include <string>

#include "loci/base/status.h"
#include "loci/cli/pull/http_client.h"
#include "loci/cli/pull/progress.h"
#include "loci/cli/pull/repo_files.h"
#include "loci/cli/pull/repo_reference.h"

namespace loci {

// The file under its folder's .loci-parts that holds what has arrived; another content has another name.
std::string part_path(const std::string& folder, const RepoFile& file);

// Bytes of the file at `path`; 0 where there is none.
std::uint64_t size_of(const std::string& path);

// Whether the content of the file at `path` is the one that the registry lists; true where it tells no hash
// and the size is right. Errors: kNotFound.
Result<bool> has_content(const std::string& path, const RepoFile& file);

// Fetches what is missing of the part, checks it and returns its path. `file` learns its hash where only the
// answer tells it. Tries again while bytes arrive, and a few times where none do.
// Errors: as pull().
Result<std::string> download_file(HttpClient& client, const HubAccess& access, const RepoReference& repo,
                                  const std::string& folder, RepoFile& file, PullProgress& progress);

// Moves a part that download_file() returned to the name under which it is served. Errors: kInternal.
Status place_file(const std::string& part, const std::string& target);

}  // namespace loci
