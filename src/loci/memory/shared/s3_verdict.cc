// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "loci/base/clock.h"

namespace loci {
namespace {

// Of credentials that no operation is possible with.
constexpr std::array<std::string_view, 7> kLoginErrors = {
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed",        "ExpiredToken",
    "InvalidToken",       "TokenRefreshRequired",  "AuthorizationHeaderMalformed"};

std::string what_it_says(const S3Reply& reply) {
  const std::string text = reply.error.text();
  return fmt::format("the store answers {}{}{}", reply.head.code, text.empty() ? "" : ": ", text);
}

Status wrong_region(const S3Reply& reply, const S3Address& address) {
  const std::string& said = reply.head.region.empty() ? reply.error.region : reply.head.region;
  return invalid_argument(fmt::format("expected the bucket {} in the region {}, found it {}", address.bucket,
                                      address.region, said.empty() ? "in another" : "in " + said));
}

Status wrong_clock(const S3Reply& reply) {
  const std::string by =
      reply.head.date ? fmt::format(" by {} s", seconds_since_1970() - *reply.head.date) : std::string();
  return invalid_argument(fmt::format(
      "expected this machine's clock to be within 15 minutes of the store's, found it ahead{}: set the clock",
      by));
}

}  // namespace

Status s3_health(const S3Reply& reply) {
  if (!reply.status.ok()) return reply.status;
  const std::uint32_t code = reply.head.code;
  const bool is_answer = code == 200 || code == 204 || code == 206 || code == 416 ||
                         (code == 404 && reply.error.code != "NoSuchBucket");
  return is_answer ? Status() : Status(StatusCode::kUnavailable, what_it_says(reply));
}

std::string s3_refusal(const S3Reply& reply) {
  if (!reply.status.ok() || s3_health(reply).ok() || reply.head.code < 400 || reply.head.code == 404)
    return "";
  const bool is_login =
      std::find(kLoginErrors.begin(), kLoginErrors.end(), reply.error.code) != kLoginErrors.end();
  return is_login ? "" : what_it_says(reply);
}

Status s3_probe_verdict(const S3Reply& reply, const S3Address& address) {
  const auto refused = [&](const char* what) {
    return invalid_argument(fmt::format("{}: {}", what, what_it_says(reply)));
  };
  if (reply.status.code() == StatusCode::kDataLoss)
    return invalid_argument(fmt::format("expected a server that speaks S3's protocol, found another one: {}",
                                        reply.status.message()));
  if (!reply.status.ok()) return reply.status;
  const std::uint32_t code = reply.head.code;
  const std::string& error = reply.error.code;
  // (HEAD alone may be answered without a body.)
  if (code == 200 || error == "NoSuchKey") return {};
  if (error == "NoSuchBucket" || error == "InvalidBucketName")
    return invalid_argument(
        fmt::format("expected the bucket {} at {}, found no such bucket", address.bucket, address.endpoint));
  if (error == "RequestTimeTooSkewed") return wrong_clock(reply);
  if (code == 301 || code == 307 || error == "AuthorizationHeaderMalformed" ||
      error == "IllegalLocationConstraintException")
    return wrong_region(reply, address);
  if (error == "InvalidAccessKeyId") return refused("the store does not know the key's id");
  if (error == "SignatureDoesNotMatch") return refused("the store refuses the key's secret");
  if (error == "ExpiredToken" || error == "InvalidToken" || error == "TokenRefreshRequired")
    return refused("the store refuses the session's token");
  if (error == "AccessDenied")
    return refused(
        "the store refuses to read from the bucket (s3:GetObject, and s3:ListBucket, without which it does "
        "not say what is missing)");
  if (code == 429 || code >= 500) return {StatusCode::kUnavailable, what_it_says(reply)};
  return invalid_argument(
      fmt::format("expected a server that speaks S3's protocol, found another one: {}", what_it_says(reply)));
}

}  // namespace loci
