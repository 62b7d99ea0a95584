// SPDX-License-Identifier: Apache-2.0
// Where pulled models lie: $XDG_CACHE_HOME/loci/models (or ~/.cache/loci/models), beside the default model.
//
//   OWNER/NAME/REVISION/      the repo's files under their own names ('/' in a revision is "%2F")
//     .loci-files.json        what was pulled: {"repo", "revision", "files": [{"path", "size", "sha256"}],
//                             "unfinished": the same of models whose pull has not ended}
//     .loci-lock              locked (flock) by whoever pulls or removes
//     .loci-parts/            files that are not yet whole
//
// A file that stands under its own name is whole and was checked; "files" names only such. What it names of
// one model came with one pull, or did not change since. What is "unfinished" may be there or not, with its
// old content or the new one: it serves nothing, and is removed with the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/cli/pull/repo_files.h"
#include "loci/cli/pull/repo_reference.h"

namespace loci {

// The folder of all models, from the environment.
std::string models_folder();

// Of one repo at one revision.
std::string repo_folder(const std::string& models, const RepoReference& repo);

struct PulledRepo {
  RepoReference repo;  // `file` is empty
  std::string folder;
  std::vector<RepoFile> files;
  std::vector<RepoFile> unfinished = {};
};

// What .loci-files.json says; nothing where there is none, or it is damaged (then the files are checked anew
// by the next pull).
std::optional<PulledRepo> read_pulled(const std::string& folder);
// Replaces it, in one step.
Status write_pulled(const PulledRepo& pulled);
// Makes the files of a model unfinished, as pull() does before it puts the first of them in its place.
// Errors: kInternal.
Status withdraw_pulled(const std::string& folder, const RepoReference& repo,
                       const std::vector<RepoFile>& files);
// Makes them files that are there. Errors: kInternal.
Status add_pulled(const std::string& folder, const RepoReference& repo, const std::vector<RepoFile>& files);

// Every repo under `models`, by name.
std::vector<PulledRepo> list_pulled(const std::string& models);

// The file or folder that serves the reference, if all of it is there; nothing is asked of any server.
std::optional<std::string> find_pulled(const std::string& models, const RepoReference& repo);

// Held while a repo's folder is changed. Movable; its destructor unlocks the folder.
class RepoLock {
 public:
  // Makes the folder. Errors: kUnavailable (another process has it), kInternal.
  static Result<RepoLock> take(const std::string& folder);
  ~RepoLock();
  RepoLock(RepoLock&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  RepoLock& operator=(RepoLock&&) = delete;
  RepoLock(const RepoLock&) = delete;

 private:
  explicit RepoLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

// Removes the files that the reference chooses (all that was pulled where it names none), of pulls that did
// not end too, with the last of them what has not come whole, and the folders that are empty then. Nothing
// but what was pulled is touched. Returns the bytes that they had. Errors: kNotFound, kUnavailable (locked).
Result<std::uint64_t> remove_pulled(const std::string& models, const RepoReference& repo);

}  // namespace loci
