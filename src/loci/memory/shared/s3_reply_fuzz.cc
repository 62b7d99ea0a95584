// SPDX-License-Identifier: Apache-2.0
// Fuzzes what reads an S3 store's words, headers and XML, and an operator's: URLs and files of credentials.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "loci/memory/shared/s3_address.h"
#include "loci/memory/shared/s3_credentials.h"
#include "loci/memory/shared/s3_reply.h"
#include "loci/memory/shared/s3_verdict.h"

namespace {

void must(bool condition) {
  if (!condition) __builtin_trap();
}

// It goes into logs.
bool is_short_and_printable(std::string_view text, std::size_t most) {
  return text.size() <= most &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

void try_address(std::string_view url) {
  const auto address = loci::parse_s3_address(url, [](const char*) { return std::string(); });
  if (!address.ok()) return;
  must(is_short_and_printable(address->url("a/b"), 2048));
  must(address->prefix.empty() || address->prefix.ends_with('/'));
  const auto again =
      loci::parse_s3_address(address->shown(), [](const char*) { return std::string("other"); });
  must(again.ok() && *again == *address);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  loci::S3Reply reply;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    reply.head.take(line);
    (void)loci::parse_http_date(line);
  }
  must(reply.head.code <= 999 && is_short_and_printable(reply.head.region, 200));
  (void)reply.head.age();
  (void)reply.head.object_bytes();
  reply.error = loci::parse_s3_error(text);
  must(is_short_and_printable(reply.error.text(), 500) && is_short_and_printable(reply.error.region, 200));
  const loci::S3Address place{.bucket = "bucket", .prefix = {}, .endpoint = "http://h", .region = "r"};
  must(loci::s3_refusal(reply).empty() || !loci::s3_health(reply).ok());
  must(is_short_and_printable(loci::s3_probe_verdict(reply, place).message(), 1500));
  try_address(text);
  try_address("s3://" + std::string(text));
  const auto credentials = loci::parse_s3_credentials(text, "default");
  must(!credentials.ok() || (!credentials->key_id.empty() && !credentials->secret.empty() &&
                             is_short_and_printable(credentials->token, size)));
  return 0;
}
