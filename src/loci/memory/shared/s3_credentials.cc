// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_credentials.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "loci/memory/shared/s3_reply.h"

namespace loci {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;

// They become parts of headers.
bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

Status check(const S3Credentials& credentials) {
  if (credentials.key_id.empty() || credentials.secret.empty())
    return invalid_argument("expected a key's id and its secret, found one of them alone");
  if (!is_plain(credentials.key_id) || !is_plain(credentials.secret) || !is_plain(credentials.token))
    return invalid_argument(
        "expected visible ASCII characters in a key's id, secret and token, found others");
  return {};
}

}  // namespace

Result<S3Credentials> parse_s3_credentials(std::string_view text, std::string_view profile) {
  S3Credentials credentials;
  bool is_here = false, is_found = false;
  while (!text.empty()) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), whole.size() + 1));
    const std::string_view line = s3_trimmed(whole);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      is_here = s3_trimmed(line.substr(1, line.find(']') - 1)) == profile;
      is_found = is_found || is_here;
      continue;
    }
    const std::size_t equals = line.find('=');
    if (!is_here || equals == std::string_view::npos) continue;
    const std::string_view name = s3_trimmed(line.substr(0, equals));
    const std::string value(s3_trimmed(line.substr(equals + 1)));
    if (name == "aws_access_key_id") credentials.key_id = value;
    if (name == "aws_secret_access_key") credentials.secret = value;
    if (name == "aws_session_token") credentials.token = value;
  }
  if (!is_found) return not_found(fmt::format("there is no profile [{}]", profile));
  LOCI_RETURN_IF_ERROR(check(credentials));
  return credentials;
}

Result<S3Credentials> find_s3_credentials(const S3Environment& environment) {
  S3Credentials credentials{.key_id = environment("AWS_ACCESS_KEY_ID"),
                            .secret = environment("AWS_SECRET_ACCESS_KEY"),
                            .token = environment("AWS_SESSION_TOKEN")};
  if (!credentials.key_id.empty() || !credentials.secret.empty()) {
    const Status status = check(credentials);
    if (!status.ok())
      return status.with_context("AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN");
    return credentials;
  }
  std::string path = environment("AWS_SHARED_CREDENTIALS_FILE");
  if (path.empty()) path = environment("HOME") + "/.aws/credentials";
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return invalid_argument(fmt::format(
        "an S3 store needs credentials: expected AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the "
        "environment, or the file {} (AWS_SHARED_CREDENTIALS_FILE names another); found neither",
        path));
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kFileBytesMax)
    return invalid_argument(fmt::format("{}: expected at most {} bytes, found more", path, kFileBytesMax));
  std::string profile = environment("AWS_PROFILE");
  if (profile.empty()) profile = "default";
  Result<S3Credentials> found = parse_s3_credentials(text, profile);
  if (!found.ok())
    return invalid_argument(
        fmt::format("{}: {} (AWS_PROFILE names another profile)", path, found.status().message()));
  return found;
}

}  // namespace loci
