// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/pull/model_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "loci/base/json_reader.h"
#include "loci/cli/paths.h"
#include "loci/serve/files/text_file.h"

namespace loci {
namespace fs = std::filesystem;

namespace {

constexpr const char* kFilesName = ".loci-files.json";
constexpr const char* kLockName = ".loci-lock";
constexpr const char* kPartsName = ".loci-parts";

std::string with_slashes(std::string folder_name) {
  for (std::size_t at = folder_name.find("%2F"); at != folder_name.npos; at = folder_name.find("%2F", at)) {
    folder_name.replace(at, 3, "/");
  }
  return folder_name;
}

std::vector<std::string> subfolders(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->is_directory(error)) out.push_back(at->path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool is_whole(const std::string& folder, const RepoFile& file) {
  std::error_code error;
  return fs::file_size(folder + "/" + file.path, error) == file.size && !error;
}

// Of a file that was removed: the folders between it and the repo's, where they are empty.
void remove_empty_parents(const std::string& folder, const std::string& path) {
  for (std::string at = path; at.find('/') != at.npos;) {
    at = at.substr(0, at.rfind('/'));
    std::error_code error;
    if (!fs::remove(folder + "/" + at, error)) return;  // not empty
  }
}

std::string text_of(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// False: the list is damaged.
bool read_files(const nlohmann::json& list, std::vector<RepoFile>& out) {
  if (!list.is_array()) return false;
  for (const nlohmann::json& entry : list) {
    if (!entry.is_object() || !entry.contains("size") || !entry["size"].is_number_unsigned()) return false;
    RepoFile file{.path = text_of(entry, "path"),
                  .size = entry["size"].get<std::uint64_t>(),
                  .sha256 = text_of(entry, "sha256"),
                  .git_sha1 = text_of(entry, "git_sha1")};
    if (!check_repo_path(file.path).ok()) return false;
    out.push_back(std::move(file));
  }
  return true;
}

nlohmann::ordered_json files_json(const std::vector<RepoFile>& files) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const RepoFile& file : files) {
    nlohmann::ordered_json entry = {{"path", file.path}, {"size", file.size}};
    if (!file.sha256.empty()) entry["sha256"] = file.sha256;
    if (!file.git_sha1.empty()) entry["git_sha1"] = file.git_sha1;
    list.push_back(std::move(entry));
  }
  return list;
}

void erase_files(std::vector<RepoFile>& list, const std::vector<RepoFile>& files) {
  std::erase_if(list, [&](const RepoFile& listed) {
    return std::any_of(files.begin(), files.end(),
                       [&](const RepoFile& file) { return file.path == listed.path; });
  });
}

// What the folder has, but for these files.
PulledRepo take_off(const std::string& folder, const RepoReference& repo,
                    const std::vector<RepoFile>& files) {
  PulledRepo out{
      .repo = {.repo = repo.repo, .revision = repo.revision, .file = {}}, .folder = folder, .files = {}};
  if (std::optional<PulledRepo> before = read_pulled(folder)) {
    out.files = std::move(before->files);
    out.unfinished = std::move(before->unfinished);
  }
  erase_files(out.files, files);
  erase_files(out.unfinished, files);
  return out;
}

// No file of the first pull has come whole.
bool has_parts_alone(const std::string& folder) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(folder + "/" + kPartsName, error)) &&
         !fs::exists(fs::symlink_status(folder + "/" + kFilesName, error));
}

std::uint64_t bytes_of_files(const std::string& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code is_gone;
    const std::uint64_t size = at->is_regular_file(is_gone) ? at->file_size(is_gone) : 0;
    if (!is_gone) bytes += size;
  }
  return bytes;
}

}  // namespace

std::string models_folder() { return user_cache_path() + "/models"; }

std::string repo_folder(const std::string& models, const RepoReference& repo) {
  return models + "/" + repo.repo + "/" + url_encode(repo.revision, Slashes::kEncode);
}

std::optional<PulledRepo> read_pulled(const std::string& folder) {
  const Result<std::string> written = read_text_file(folder + "/" + kFilesName);
  if (!written.ok()) return std::nullopt;
  const nlohmann::json json = read_json<nlohmann::json>(*written, {}).value;
  if (!json.is_object() || !json.contains("files")) return std::nullopt;
  PulledRepo out{.repo = {.repo = text_of(json, "repo"), .revision = text_of(json, "revision"), .file = {}},
                 .folder = folder,
                 .files = {}};
  if (!read_files(json["files"], out.files)) return std::nullopt;
  if (json.contains("unfinished") && !read_files(json["unfinished"], out.unfinished)) return std::nullopt;
  return out;
}

Status write_pulled(const PulledRepo& pulled) {
  nlohmann::ordered_json json = {
      {"repo", pulled.repo.repo}, {"revision", pulled.repo.revision}, {"files", files_json(pulled.files)}};
  if (!pulled.unfinished.empty()) json["unfinished"] = files_json(pulled.unfinished);
  const std::string path = pulled.folder + "/" + kFilesName;
  std::ofstream out(path + ".new", std::ios::binary | std::ios::trunc);
  out << json.dump(2) << "\n";
  out.close();
  std::error_code error;
  if (out) fs::rename(path + ".new", path, error);
  if (!out || error) return internal_error(fmt::format("{} cannot be written", path));
  return {};
}

Status withdraw_pulled(const std::string& folder, const RepoReference& repo,
                       const std::vector<RepoFile>& files) {
  PulledRepo pulled = take_off(folder, repo, files);
  pulled.unfinished.insert(pulled.unfinished.end(), files.begin(), files.end());
  return write_pulled(pulled);
}

Status add_pulled(const std::string& folder, const RepoReference& repo, const std::vector<RepoFile>& files) {
  PulledRepo pulled = take_off(folder, repo, files);
  pulled.files.insert(pulled.files.end(), files.begin(), files.end());
  std::sort(pulled.files.begin(), pulled.files.end(),
            [](const RepoFile& a, const RepoFile& b) { return a.path < b.path; });
  return write_pulled(pulled);
}

std::vector<PulledRepo> list_pulled(const std::string& models) {
  std::vector<PulledRepo> out;
  for (const std::string& owner : subfolders(models)) {
    for (const std::string& name : subfolders(models + "/" + owner)) {
      for (const std::string& revision : subfolders(fmt::format("{}/{}/{}", models, owner, name))) {
        const std::string folder = fmt::format("{}/{}/{}/{}", models, owner, name, revision);
        std::optional<PulledRepo> pulled = read_pulled(folder);
        if (!pulled) continue;
        pulled->repo = {.repo = owner + "/" + name, .revision = with_slashes(revision), .file = {}};
        out.push_back(*std::move(pulled));
      }
    }
  }
  return out;
}

std::optional<std::string> find_pulled(const std::string& models, const RepoReference& repo) {
  const std::string folder = repo_folder(models, repo);
  const std::optional<PulledRepo> pulled = read_pulled(folder);
  if (!pulled) return std::nullopt;
  const Result<ChosenFiles> chosen = choose_files(pulled->files, repo.file);
  if (!chosen.ok()) return std::nullopt;
  for (const RepoFile& file : chosen->files) {
    if (!is_whole(folder, file)) return std::nullopt;
  }
  return chosen->entry.empty() ? folder : folder + "/" + chosen->entry;
}

Result<RepoLock> RepoLock::take(const std::string& folder) {
  const std::string path = folder + "/" + kLockName;
  for (int tries = 0; tries < 100; ++tries) {
    std::error_code error;
    fs::create_directories(folder + "/" + kPartsName, error);
    const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (descriptor < 0) {
      return internal_error(fmt::format("{} cannot be written: {}", folder, std::strerror(errno)));
    }
    RepoLock lock(descriptor);
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      return Status(StatusCode::kUnavailable,
                    fmt::format("another process is changing {}: wait for its end", folder));
    }
    struct stat held{};
    // Whoever removed the repo took the lock's file with it: this one is nobody's.
    if (fstat(descriptor, &held) == 0 && held.st_nlink > 0) return Result<RepoLock>(std::move(lock));
  }
  return internal_error(fmt::format("{} cannot be locked", folder));
}

RepoLock::~RepoLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

Result<std::uint64_t> remove_pulled(const std::string& models, const RepoReference& repo) {
  const std::string folder = repo_folder(models, repo);
  const std::string parts = folder + "/" + kPartsName;
  if (!read_pulled(folder) && !(repo.file.empty() && has_parts_alone(folder)))
    return not_found(fmt::format("{} is not here (`loci list` shows what is)", repo.text()));
  LOCI_ASSIGN_OR_RETURN(const RepoLock lock, RepoLock::take(folder));
  std::optional<PulledRepo> pulled = read_pulled(folder);
  if (!pulled && !repo.file.empty()) return not_found(fmt::format("{} is not here any more", repo.text()));
  if (!pulled) pulled = PulledRepo{.repo = repo, .folder = folder, .files = {}};
  std::vector<RepoFile> going = pulled->files;
  going.insert(going.end(), pulled->unfinished.begin(), pulled->unfinished.end());
  if (!repo.file.empty()) {
    LOCI_ASSIGN_OR_RETURN(ChosenFiles chosen, choose_files(going, repo.file));
    going = std::move(chosen.files);
  }
  erase_files(pulled->files, going);
  erase_files(pulled->unfinished, going);
  // First the promise, then the files: what is named there is always whole.
  LOCI_RETURN_IF_ERROR(write_pulled(*pulled));
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const RepoFile& file : going) {
    const std::string path = folder + "/" + file.path;
    const std::uint64_t size = fs::file_size(path, error);  // an error: the file is not there
    if (fs::remove(path, error)) bytes += size;
    remove_empty_parents(folder, file.path);
  }
  if (pulled->files.empty() && pulled->unfinished.empty()) {
    bytes += bytes_of_files(parts);
    fs::remove_all(parts, error);
    fs::remove(folder + "/" + kFilesName, error);
    fs::remove(folder + "/" + kLockName, error);
    fs::remove(folder, error);  // only where nobody else left something there
    fs::remove(fs::path(folder).parent_path(), error);
    fs::remove(fs::path(folder).parent_path().parent_path(), error);
  }
  return bytes;
}

}  // namespace loci
