// SPDX-License-Identifier: Apache-2.0
// The files of a repo: as the registry lists them, and which of them make the model that was asked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"

namespace loci {

struct RepoFile {
  std::string path;  // checked by check_repo_path()
  std::uint64_t size = 0;
  std::string sha256;    // hex, of the content; empty where the registry does not tell
  std::string git_sha1;  // hex, of git's blob; for files that are no large ones
};

// No model has a larger file; the sizes of as many files as a repo may have can be added up.
inline constexpr std::uint64_t kRepoFileBytesMax = std::uint64_t{64} << 40;

// One page of what /api/models/REPO/tree/REVISION?recursive=true answers, without folders.
// Errors: kDataLoss (not that form, a path that leads out of the folder, or more than kRepoFileBytesMax).
Result<std::vector<RepoFile>> parse_repo_tree(std::string_view json);

struct ChosenFiles {
  std::vector<RepoFile> files;
  std::string entry;  // what is served: the path of a file, or "" for the folder
};

// `wanted` is a file's path (of a split one any part), a quantisation ("Q4_K_M", found in the names of GGUF
// files), or empty: the safetensors with configuration, tokenizer and template where the repo has them,
// else its only GGUF model, else the one of Q4_K_M.
// Errors: kNotFound, listing what there is.
Result<ChosenFiles> choose_files(const std::vector<RepoFile>& files, const std::string& wanted);

}  // namespace loci
