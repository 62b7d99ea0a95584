// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/pull/repo_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "loci/base/printable.h"

namespace loci {
namespace {

constexpr std::size_t kNameBytesMax = 96;
constexpr std::size_t kPathBytesMax = 1024;
constexpr std::size_t kSegmentBytesMax = 200;  // less than a file system's 255: partial files add to it

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
}

// Of an owner, a repo or one segment of a revision: no "..", nothing hidden, nothing like a flag.
bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax && text.front() != '.' && text.front() != '-' &&
         text.find("..") == text.npos && std::all_of(text.begin(), text.end(), is_name_char);
}

bool is_revision(std::string_view text) {
  if (text.size() > kNameBytesMax) return false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    if (!is_name(text.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

std::string RepoReference::text() const {
  return repo + (revision == "main" ? "" : "@" + revision) + (file.empty() ? "" : ":" + file);
}

Result<RepoReference> parse_repo_reference(std::string_view text) {
  RepoReference out;
  std::string_view rest = text;
  if (const std::size_t colon = rest.find(':'); colon != rest.npos) {
    out.file = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (out.file.empty() || !check_repo_path(out.file).ok()) {
      return invalid_argument(fmt::format(
          "after ':' expected a file of the repo or a quantisation such as Q4_K_M, found \"{}\"", out.file));
    }
  }
  if (const std::size_t at = rest.find('@'); at != rest.npos) {
    out.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (!is_revision(out.revision)) {
      return invalid_argument(
          fmt::format("after '@' expected a branch, a tag or a commit, found \"{}\"", out.revision));
    }
  }
  const std::size_t slash = rest.find('/');
  if (slash == rest.npos || !is_name(rest.substr(0, slash)) || !is_name(rest.substr(slash + 1))) {
    return invalid_argument(fmt::format("expected OWNER/NAME[@REVISION][:FILE], found \"{}\"", text));
  }
  out.repo = rest;
  return out;
}

Status check_repo_path(std::string_view path) {
  const auto refuse = [path](const std::string& why) {
    return data_loss(
        fmt::format("the file name \"{}\" {}", printable(path.substr(0, 200), LineEnds::kReplace), why));
  };
  if (path.empty() || path.size() > kPathBytesMax)
    return refuse(path.empty()
                      ? "is empty"
                      : fmt::format("has {} bytes, at most {} are allowed", path.size(), kPathBytesMax));
  if (printable(path, LineEnds::kReplace) != path || path.find('\\') != path.npos)
    return refuse("has a control character or a backslash");
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view segment = path.substr(begin, end - begin);
    if (segment.empty() || segment == "." || segment == "..") return refuse("leads out of the repo's folder");
    if (segment.size() > kSegmentBytesMax)
      return refuse(
          fmt::format("has a name of {} bytes, at most {} are allowed", segment.size(), kSegmentBytesMax));
    if (segment.starts_with(".loci")) return refuse("is one of Loci's own");
    begin = end + 1;
  }
  return {};
}

std::string url_encode(std::string_view text, Slashes slashes) {
  std::string out;
  for (const char c : text) {
    if (is_name_char(c) || c == '~' || (c == '/' && slashes == Slashes::kKeep)) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace loci
