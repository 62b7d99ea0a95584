// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/pull/file_download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "loci/base/ascii.h"
#include "loci/base/descriptor.h"
#include "loci/cli/pull/file_hash.h"
#include "loci/cli/pull/hub.h"

namespace loci {
namespace fs = std::filesystem;

namespace {

// Appends to a part.
class PartSink final : public BodySink {
 public:
  PartSink(int descriptor, std::uint64_t offset, const RepoFile& file, PullProgress& progress)
      : descriptor_(descriptor), at_(offset), file_(file), progress_(progress) {}

  Status begin(const HttpReply& head) override {
    if (head.status == 206) {
      if (head.content_range.starts_with(fmt::format("bytes {}-", at_))) return {};
      return Status(StatusCode::kUnavailable,
                    fmt::format("asked for byte {}, got {}", at_, head.content_range));
    }
    // The server sends all of it whatever was asked for.
    progress_.add(-static_cast<std::int64_t>(at_));
    at_ = 0;
    if (ftruncate(descriptor_, 0) != 0) return write_error();
    return {};
  }

  Status take(std::string_view data) override {
    if (data.size() > file_.size - at_) {
      return data_loss(
          fmt::format("{} is longer than the {} bytes that the registry lists", file_.path, file_.size));
    }
    while (!data.empty()) {
      const ssize_t written = pwrite(descriptor_, data.data(), data.size(), static_cast<off_t>(at_));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return write_error();
      at_ += static_cast<std::uint64_t>(written);
      progress_.add(written);
      data.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
  }

 private:
  Status write_error() const {
    const StatusCode code = errno == ENOSPC ? StatusCode::kResourceExhausted : StatusCode::kInternal;
    return Status(code, fmt::format("{} cannot be written: {}", file_.path, std::strerror(errno)));
  }

  int descriptor_;
  std::uint64_t at_;
  const RepoFile& file_;
  PullProgress& progress_;
};

// The hash that an answer's header tells: 64 digits are of the content, 40 of git's blob.
void learn_hash(const HttpReply& reply, RepoFile& file) {
  if (!file.sha256.empty() || !file.git_sha1.empty()) return;
  std::string tag = reply.linked_etag.empty() ? reply.etag : reply.linked_etag;
  std::erase(tag, '"');
  if (!is_lower_hex(tag)) return;
  if (tag.size() == 64) file.sha256 = tag;
  if (tag.size() == 40) file.git_sha1 = tag;
}

// One request.
Status fetch_once(HttpClient& client, const HubAccess& access, const RepoReference& repo, RepoFile& file,
                  const Descriptor& part, PullProgress& progress, std::string& retry_after) {
  const off_t end = lseek(part.get(), 0, SEEK_END);
  auto offset = static_cast<std::uint64_t>(std::max<off_t>(0, end));
  const auto start_over = [&] {
    progress.add(-static_cast<std::int64_t>(offset));
    offset = 0;
    return ftruncate(part.get(), 0) == 0;
  };
  if (offset > file.size && !start_over()) return internal_error("a partial file cannot be emptied");
  if (offset == file.size && file.size > 0) return {};
  PartSink sink(part.get(), offset, file, progress);
  const Result<HttpReply> reply = client.get(file_url(access, repo, file.path), offset, &sink);
  if (!reply.ok()) return reply.status();
  retry_after = reply->retry_after;
  if (reply->status == 416) {
    // What is there is not what the server has.
    if (!start_over()) return internal_error("a partial file cannot be emptied");
    return Status(
        StatusCode::kUnavailable,
        "the part of the file that is here is longer than the file on the server; it is fetched anew");
  }
  if (reply->status != 200 && reply->status != 206) return refusal(*reply, access, repo, file.path);
  learn_hash(*reply, file);
  const auto have = static_cast<std::uint64_t>(std::max<off_t>(0, lseek(part.get(), 0, SEEK_END)));
  if (have < file.size) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("the connection ended after {} of {} bytes", have, file.size));
  }
  return {};
}

Status fetch(HttpClient& client, const HubAccess& access, const RepoReference& repo, RepoFile& file,
             const std::string& path, PullProgress& progress) {
  const Descriptor part(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (part.get() < 0)
    return internal_error(fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
  off_t highest = lseek(part.get(), 0, SEEK_END);
  for (int failures = 0;;) {
    std::string retry_after;
    const Status status = fetch_once(client, access, repo, file, part, progress, retry_after);
    if (status.ok()) {
      if (fsync(part.get()) != 0)
        return internal_error(fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
      return {};
    }
    // What is fetched again after a start from the beginning is no gain.
    const off_t end = lseek(part.get(), 0, SEEK_END);
    failures = end > highest ? 1 : failures + 1;
    highest = std::max(highest, end);
    if (status.code() != StatusCode::kUnavailable || failures >= kAttempts) {
      if (status.code() == StatusCode::kDataLoss && ftruncate(part.get(), 0) != 0) {
        return internal_error(fmt::format("{} cannot be emptied", path));
      }
      return status.with_context(file.path);
    }
    wait_before_retry(failures, retry_after);
  }
}

}  // namespace

std::uint64_t size_of(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

std::string part_path(const std::string& folder, const RepoFile& file) {
  const std::string& hash = file.sha256.empty() ? file.git_sha1 : file.sha256;
  Sha1 path;
  path.update(file.path);
  return fmt::format("{}/.loci-parts/{}-{}.part", folder, path.hex().substr(0, 16),
                     hash.empty() ? "unnamed" : hash.substr(0, 16));
}

Result<bool> has_content(const std::string& path, const RepoFile& file) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return not_found(path + " is not there");
  if (size_of(path) != file.size) return false;
  if (!file.sha256.empty()) {
    LOCI_ASSIGN_OR_RETURN(const std::string hash, sha256_of_file(path));
    return hash == file.sha256;
  }
  if (!file.git_sha1.empty()) {
    LOCI_ASSIGN_OR_RETURN(const std::string hash, git_sha1_of_file(path));
    return hash == file.git_sha1;
  }
  return true;
}

Result<std::string> download_file(HttpClient& client, const HubAccess& access, const RepoReference& repo,
                                  const std::string& folder, RepoFile& file, PullProgress& progress) {
  const std::string part = part_path(folder, file);
  const bool resumed = size_of(part) > 0;
  for (bool again = resumed;; again = false) {
    LOCI_RETURN_IF_ERROR(fetch(client, access, repo, file, part, progress));
    LOCI_ASSIGN_OR_RETURN(const bool right, has_content(part, file));
    if (right) return part;
    std::error_code error;
    fs::remove(part, error);
    progress.add(-static_cast<std::int64_t>(file.size));
    // What an earlier pull left may be the fault: once more, from the beginning.
    if (!again) {
      return data_loss(fmt::format(
          "{}: what arrived has not the hash that the registry lists; it was removed", file.path));
    }
  }
}

Status place_file(const std::string& part, const std::string& target) {
  std::error_code error;
  fs::create_directories(fs::path(target).parent_path(), error);
  if (!error) fs::rename(part, target, error);
  if (error) return internal_error(fmt::format("{} cannot be moved into place: {}", target, error.message()));
  return {};
}

}  // namespace loci
