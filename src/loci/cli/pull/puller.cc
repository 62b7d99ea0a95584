// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/pull/puller.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>
#include <thread>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/base/units.h"
#include "loci/cli/pull/file_download.h"
#include "loci/cli/pull/hub.h"
#include "loci/cli/pull/model_folder.h"
#include "loci/cli/pull/progress.h"

namespace loci {
namespace fs = std::filesystem;

namespace {

// Room that is left free beside what is fetched: the list of files, and what else runs.
constexpr std::uint64_t kSpareBytes = std::uint64_t{16} << 20;

// What of the chosen files is to be fetched: not what is there with the content that the registry lists.
std::vector<RepoFile> missing_files(const std::vector<RepoFile>& chosen, const std::string& folder) {
  std::map<std::string, RepoFile> known;
  if (const std::optional<PulledRepo> pulled = read_pulled(folder)) {
    for (const RepoFile& file : pulled->files) known[file.path] = file;
  }
  std::vector<RepoFile> out;
  for (const RepoFile& file : chosen) {
    const std::string path = folder + "/" + file.path;
    const auto had = known.find(file.path);
    const bool same = had != known.end() && had->second.size == file.size && size_of(path) == file.size &&
                      had->second.sha256 == file.sha256 && had->second.git_sha1 == file.git_sha1;
    if (same) continue;
    // There, but not on the list: a list that was lost. Its content decides.
    const bool has_hash = !file.sha256.empty() || !file.git_sha1.empty();
    if (const Result<bool> right = has_content(path, file); has_hash && right.ok() && *right) continue;
    out.push_back(file);
  }
  return out;
}

// A part counts as far as it is there.
std::uint64_t bytes_there(const std::vector<RepoFile>& files, const std::string& folder) {
  std::uint64_t out = 0;
  for (const RepoFile& file : files) {
    const std::uint64_t size = size_of(part_path(folder, file));
    if (size <= file.size) out += size;
  }
  return out;
}

Status check_room(const std::string& folder, std::uint64_t needed) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || (needed < space.available && space.available - needed >= kSpareBytes)) return {};
  return resource_exhausted(fmt::format("{} are needed, {} are free at {}",
                                        format_bytes(needed + kSpareBytes), format_bytes(space.available),
                                        folder));
}

// Fetches all files with `connections` threads; the first error ends the others after their file.
class Fetching {
 public:
  // `files` are those of the model that are missing; `model` has all of its files.
  Fetching(const RepoReference& repo, const PullOptions& options, std::string folder,
           std::vector<RepoFile>& files, const std::vector<RepoFile>& model, PullProgress& progress)
      : repo_(repo),
        options_(options),
        folder_(std::move(folder)),
        files_(files),
        model_(model),
        progress_(progress) {}

  Status run() {
    std::vector<std::future<void>> threads;
    const std::size_t count = std::clamp<std::size_t>(files_.size(), 1, options_.connections);
    for (std::size_t i = 0; i < count; ++i) {
      threads.push_back(std::async(std::launch::async, [this] { work(); }));
    }
    for (std::future<void>& thread : threads) {
      while (thread.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
        progress_.show(clock_.now());
      }
    }
    progress_.end(clock_.now());
    const MutexLock lock(mutex_);
    return failed_;
  }

 private:
  void work() {
    HttpClient client(options_.access);
    for (std::size_t i = next_.fetch_add(1); i < files_.size(); i = next_.fetch_add(1)) {
      const Status status = fetch(client, files_[i]);
      if (status.ok()) {
        progress_.file_done();
        continue;
      }
      const MutexLock lock(mutex_);
      if (failed_.ok()) failed_ = status;
      next_.store(files_.size());
    }
  }

  Status fetch(HttpClient& client, RepoFile& file) {
    LOCI_ASSIGN_OR_RETURN(const std::string part,
                          download_file(client, options_.access, repo_, folder_, file, progress_));
    LOCI_RETURN_IF_ERROR(withdraw());
    return place_file(part, folder_ + "/" + file.path);
  }

  // First the promise, then the files: from the first new file until the last the folder has a mixture of
  // two contents, which nobody may serve. Until then the old model is whole.
  Status withdraw() {
    const MutexLock lock(mutex_);
    if (is_withdrawn_) return {};
    LOCI_RETURN_IF_ERROR(withdraw_pulled(folder_, repo_, model_));
    is_withdrawn_ = true;
    return {};
  }

  const RepoReference& repo_;
  const PullOptions& options_;
  const std::string folder_;
  std::vector<RepoFile>& files_;  // each is one thread's
  const std::vector<RepoFile>& model_;
  PullProgress& progress_;
  SystemClock clock_;
  std::atomic<std::size_t> next_{0};
  Mutex mutex_;
  bool is_withdrawn_ GUARDED_BY(mutex_) = false;
  Status failed_ GUARDED_BY(mutex_);
};

}  // namespace

Result<std::string> pull(const RepoReference& repo, const PullOptions& options) {
  HttpClient client(options.access);
  LOCI_ASSIGN_OR_RETURN(const std::vector<RepoFile> listed, list_repo(client, options.access, repo));
  const Result<ChosenFiles> choice = choose_files(listed, repo.file);
  if (!choice.ok()) return choice.status().with_context(repo.repo);
  const ChosenFiles& chosen = *choice;
  const std::string folder = repo_folder(options.models, repo);
  LOCI_ASSIGN_OR_RETURN(const RepoLock lock, RepoLock::take(folder));
  std::vector<RepoFile> missing = missing_files(chosen.files, folder);
  std::uint64_t total = 0;
  for (const RepoFile& file : missing) total += file.size;
  const std::uint64_t there = bytes_there(missing, folder);
  if (!missing.empty()) {
    LOCI_RETURN_IF_ERROR(check_room(folder, total - there));
    const bool bar = !options.say && isatty(STDERR_FILENO) != 0;
    const PullProgress::Say print = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
    const PullProgress::Say& say = options.say ? options.say : print;
    say(fmt::format("{}: {} file{}, {}{}", repo.text(), missing.size(), missing.size() == 1 ? "" : "s",
                    format_bytes(total),
                    there == 0 ? "" : fmt::format(" ({} are there already)", format_bytes(there))));
    PullProgress progress(bar ? PullProgress::Say() : say, total, there, missing.size());
    LOCI_RETURN_IF_ERROR(Fetching(repo, options, folder, missing, chosen.files, progress).run());
  }
  std::vector<RepoFile> have = chosen.files;
  for (RepoFile& file : have) {
    for (const RepoFile& fetched : missing) {
      if (fetched.path == file.path) file = fetched;  // with the hash that its answer told
    }
  }
  LOCI_RETURN_IF_ERROR(add_pulled(folder, repo, have));
  return chosen.entry.empty() ? folder : folder + "/" + chosen.entry;
}

}  // namespace loci
