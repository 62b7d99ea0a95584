// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/pull/hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <thread>

namespace loci {
namespace {

constexpr int kPagesMax = 200;
constexpr std::size_t kFilesMax = 100'000;
static_assert(kFilesMax <= INT64_MAX / kRepoFileBytesMax, "the sum of all sizes must not wrap");

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// The cursor of the next page. The link's host may be another than the one that was asked (a mirror's), so
// nothing but the cursor is taken from it.
std::string next_cursor(const std::string& link) {
  const std::size_t next = link.find("rel=\"next\"");
  const std::size_t open = link.rfind('<', next);
  if (next == link.npos || open == link.npos) return "";
  const std::string url = link.substr(open + 1, link.find('>', open) - open - 1);
  for (const char* name : {"?cursor=", "&cursor="}) {
    const std::size_t at = url.find(name);
    if (at == url.npos) continue;
    const std::size_t begin = at + 8;
    return url.substr(begin, url.find('&', begin) - begin);
  }
  return "";
}

Result<HttpReply> get_with_retries(HttpClient& client, const HubAccess& access, const RepoReference& repo,
                                   const std::string& url) {
  for (int failures = 1;; ++failures) {
    const Result<HttpReply> reply = client.get(url);
    Status status = reply.status();
    if (reply.ok()) {
      if (reply->status == 200) return reply;
      status = refusal(*reply, access, repo, "");
    }
    if (status.code() != StatusCode::kUnavailable || failures == kAttempts) return status;
    wait_before_retry(failures, reply.ok() ? reply->retry_after : "");
  }
}

}  // namespace

HubAccess hub_access_of_environment() {
  HubAccess out{.endpoint = variable("HF_ENDPOINT"), .token = variable("HF_TOKEN")};
  out.is_chosen = !out.endpoint.empty();
  if (!out.is_chosen) out.endpoint = "https://huggingface.co";
  while (out.endpoint.ends_with('/')) out.endpoint.pop_back();
  return out;
}

void wait_before_retry(int failures, const std::string& retry_after) {
  int seconds = 0;
  std::from_chars(retry_after.data(), retry_after.data() + retry_after.size(), seconds);
  const auto asked = std::chrono::milliseconds(std::clamp(seconds, 0, 60) * 1000);
  const auto own = std::chrono::milliseconds(250 << std::clamp(failures - 1, 0, 6));
  std::this_thread::sleep_for(std::max(asked, own));
}

std::string file_url(const HubAccess& access, const RepoReference& repo, const std::string& path) {
  return fmt::format("{}/{}/resolve/{}/{}", access.endpoint, repo.repo,
                     url_encode(repo.revision, Slashes::kEncode), url_encode(path, Slashes::kKeep));
}

Status refusal(const HttpReply& reply, const HubAccess& access, const RepoReference& repo,
               const std::string& path) {
  const bool has_token = !access.token.empty();
  if (reply.error_code == "GatedRepo" || reply.status == 403) {
    return invalid_argument(fmt::format(
        "{} is open only to those who accepted its terms: accept them at {}/{}, {}", repo.repo,
        access.endpoint, repo.repo,
        has_token ? "with the account of HF_TOKEN" : "then set HF_TOKEN to a token of your account"));
  }
  if (reply.status == 401) {
    return invalid_argument(
        has_token
            ? fmt::format("the registry does not accept HF_TOKEN for {}", repo.repo)
            : fmt::format("there is no public {}: if it is private, set HF_TOKEN to a token that may read it",
                          repo.repo));
  }
  if (reply.error_code == "RevisionNotFound") {
    return not_found(fmt::format("{} has no revision {}", repo.repo, repo.revision));
  }
  const std::string what = path.empty() ? "the list of files of " + repo.repo : path;
  if (reply.status == 404) {
    const std::string missing = path.empty() ? "there is no repository " + repo.repo
                                             : fmt::format("{} has no file {}", repo.repo, path);
    return not_found(
        fmt::format("{} at {}, revision {}: is the name right?", missing, access.endpoint, repo.revision));
  }
  if (reply.status == 429 || reply.status == 408 || reply.status >= 500) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("the registry answered {} for {}", reply.status, what));
  }
  return internal_error(fmt::format("the registry answered {} for {}", reply.status, what));
}

namespace {

Result<std::vector<RepoFile>> list_pages(HttpClient& client, const HubAccess& access,
                                         const RepoReference& repo) {
  const std::string first = fmt::format("{}/api/models/{}/tree/{}?recursive=true", access.endpoint, repo.repo,
                                        url_encode(repo.revision, Slashes::kEncode));
  std::vector<RepoFile> out;
  std::set<std::string> seen;
  std::string cursor;
  for (int page = 0; page < kPagesMax; ++page) {
    LOCI_ASSIGN_OR_RETURN(
        const HttpReply reply,
        get_with_retries(client, access, repo, cursor.empty() ? first : first + "&cursor=" + cursor));
    LOCI_ASSIGN_OR_RETURN(std::vector<RepoFile> files, parse_repo_tree(reply.body));
    for (RepoFile& file : files) {
      if (!seen.insert(file.path).second)
        return data_loss(fmt::format("the registry lists {} twice", file.path));
      out.push_back(std::move(file));
    }
    if (out.size() > kFilesMax) break;
    cursor = next_cursor(reply.link);
    if (cursor.empty()) return out;
  }
  return data_loss(fmt::format("{} has more than {} files", repo.repo, kFilesMax));
}

}  // namespace

Result<std::vector<RepoFile>> list_repo(HttpClient& client, const HubAccess& access,
                                        const RepoReference& repo) {
  if (!is_web_url(access.endpoint)) {
    return invalid_argument(fmt::format(
        "HF_ENDPOINT: expected a URL of http or https, such as https://huggingface.co, found \"{}\"",
        access.endpoint));
  }
  Result<std::vector<RepoFile>> files = list_pages(client, access, repo);
  if (files.ok() || !access.is_chosen) return files;
  const Status status = files.status();
  return Status(status.code(), fmt::format("{} (HF_ENDPOINT names this registry)", status.message()),
                status.field());
}

}  // namespace loci
