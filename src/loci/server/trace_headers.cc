// SPDX-License-Identifier: Apache-2.0
#include "loci/server/trace_headers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "loci/base/ascii.h"
#include "loci/base/descriptor.h"
#include "loci/serve/files/text_file.h"

namespace loci {
namespace {

constexpr const char* kOption = "trace_headers";

// What says how long the body is, how it is written, and whom the request is for: two of them would let
// whoever reads the request find its end elsewhere.
constexpr auto kOwn = std::to_array<std::string_view>(
    {"connection", "content-encoding", "content-length", "content-type", "expect", "host", "keep-alive",
     "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"});

bool is_token(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  };
  return !text.empty() && std::ranges::all_of(text, fits);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  const std::size_t end = text.find_last_not_of(" \t") + 1;  // 0 of nothing but blanks
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

Result<Descriptor> open_secret(const std::string& path) {
  // Opening a pipe would wait for whoever writes it.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open() && errno == ENOENT)
    return Status(StatusCode::kNotFound, fmt::format("{} is not there", path), kOption);
  struct stat facts{};
  if (!file.is_open() || ::fstat(file.get(), &facts) != 0)
    return Status(StatusCode::kUnavailable, fmt::format("{} cannot be read: {}", path, std::strerror(errno)),
                  kOption);
  if (!S_ISREG(facts.st_mode) || facts.st_size > static_cast<off_t>(kTraceHeadersBytesMax))
    return invalid_argument(
        fmt::format("{}: expected an ordinary file of at most {} bytes, found {}", path,
                    kTraceHeadersBytesMax,
                    S_ISREG(facts.st_mode) ? fmt::format("{} bytes", facts.st_size) : "another kind"),
        kOption);
  if ((facts.st_mode & 077) != 0)
    return invalid_argument(
        fmt::format("{}: expected mode 0600, so that its owner alone reads it, found {:04o}; "
                    "chmod 600 {}",
                    path, static_cast<unsigned>(facts.st_mode & 07777), path),
        kOption);
  return file;
}

}  // namespace

Status check_trace_header(std::string_view name, std::string_view value) {
  if (!is_token(name))
    return invalid_argument(
        "expected a header's name of letters, digits and - . _ ! # $ % & ' * + ^ ` | ~, found another "
        "character or none");
  if (std::ranges::find(kOwn, lower_ascii(name)) != kOwn.end())
    return invalid_argument(fmt::format("expected a header beside the exporter's own, found {}", name));
  const bool is_sendable =
      std::ranges::all_of(value, [](char c) { return (c >= ' ' && c <= '~') || c == '\t'; });
  if (!is_sendable)
    return invalid_argument(
        "expected a header's value of visible ASCII characters and blanks, found another (a line end, say)");
  return {};
}

Result<TraceHeaders> parse_trace_headers(std::string_view text) {
  TraceHeaders out;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (trimmed(line).empty() || line.starts_with('#')) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos)
      return invalid_argument(fmt::format("line {}: expected NAME: VALUE, found no colon", number));
    const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
    if (const Status status = check_trace_header(name, value); !status.ok())
      return invalid_argument(fmt::format("line {}: {}", number, status.message()));
    if (out.size() == kTraceHeadersMax)
      return invalid_argument(fmt::format("line {}: expected at most {} headers", number, kTraceHeadersMax));
    out.emplace_back(name, value);
  }
  return out;
}

Result<TraceHeaders> read_trace_headers(const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const Descriptor file, open_secret(path));
  const Result<std::string> text = read_text(file.get(), path);
  if (!text.ok()) return Status(text.status().code(), text.status().message(), kOption);
  Result<TraceHeaders> headers = parse_trace_headers(*text);
  if (!headers.ok())
    return invalid_argument(fmt::format("{}: {}", path, headers.status().message()), kOption);
  // A file that is being written is empty for a moment.
  if (headers->empty())
    return invalid_argument(
        fmt::format("{}: expected lines such as Authorization: Bearer KEY, found none", path), kOption);
  return headers;
}

}  // namespace loci
