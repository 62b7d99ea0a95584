// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace loci {
namespace {

constexpr const char* kForm = "s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME&style=path|virtual]";
constexpr std::size_t kUrlBytesMax = 4096;
constexpr std::size_t kPrefixBytesMax = 512;  // S3 has names of up to 1,024 bytes

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool all_of(std::string_view text, std::string_view others) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return is_digit(c) || is_letter(c) || others.find(c) != std::string_view::npos;
  });
}

Status take_bucket(std::string_view bucket, S3Address& address) {
  const bool has_capitals =
      std::any_of(bucket.begin(), bucket.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  if (bucket.size() < 3 || bucket.size() > 63 || has_capitals || !all_of(bucket, ".-") ||
      bucket.front() == '.' || bucket.front() == '-' || bucket.find("..") != std::string_view::npos)
    return invalid_argument(
        fmt::format("expected a bucket's name of 3 to 63 small letters, digits, dots and hyphens, found {}",
                    all_of(bucket, ".-_") ? fmt::format("'{}'", bucket) : "other characters"));
  address.bucket = bucket;
  return {};
}

// Nothing of it is escaped in a URL, and no part of it is one that a client may take out.
Status take_prefix(std::string_view prefix, S3Address& address) {
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (prefix.empty()) return {};
  const std::string slashed = fmt::format("/{}/", prefix);
  bool is_plain = prefix.size() <= kPrefixBytesMax && all_of(prefix, "-_./");
  for (const char* part : {"//", "/./", "/../"})
    is_plain = is_plain && slashed.find(part) == std::string::npos;
  if (!is_plain)
    return invalid_argument(
        fmt::format("expected a prefix of at most {} letters, digits and -_./ without empty parts, found "
                    "'{}'",
                    kPrefixBytesMax, prefix.substr(0, kPrefixBytesMax)));
  address.prefix = fmt::format("{}/", prefix);
  return {};
}

bool is_port(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 && value <= 65535;
}

// HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT.
bool is_place(std::string_view place) {
  if (place.starts_with('[')) {
    const std::size_t end = place.find(']');
    if (end == std::string_view::npos || end == 1) return false;
    if (!all_of(place.substr(1, end - 1), ":.")) return false;
    place.remove_prefix(end + 1);
    return place.empty() || (place.front() == ':' && is_port(place.substr(1)));
  }
  const std::size_t colon = place.find(':');
  if (colon != std::string_view::npos && !is_port(place.substr(colon + 1))) return false;
  const std::string_view host = place.substr(0, colon);
  return !host.empty() && host.size() <= 253 && all_of(host, "-._");
}

// The endpoint's host is an address of numbers, in front of which no name can stand.
bool is_number(std::string_view endpoint) {
  const std::string_view place = endpoint.substr(endpoint.find("://") + 3);
  return place.starts_with('[') ||
         place.substr(0, place.find(':')).find_first_not_of("0123456789.") == std::string_view::npos;
}

Status take_endpoint(std::string_view endpoint, S3Address& address) {
  while (endpoint.ends_with('/')) endpoint.remove_suffix(1);
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (!endpoint.starts_with(scheme) || !is_place(endpoint.substr(scheme.size()))) continue;
    address.endpoint = endpoint;
    return {};
  }
  return invalid_argument(fmt::format(
      "expected endpoint=https://HOST[:PORT] or endpoint=http://HOST[:PORT], found '{}'", endpoint));
}

Status take_region(std::string_view region, S3Address& address) {
  if (region.empty() || region.size() > 64 || !all_of(region, "-_"))
    return invalid_argument(
        fmt::format("expected a region of at most 64 letters, digits, - and _, found '{}'", region));
  address.region = region;
  return {};
}

Status take_query(std::string_view query, S3Address& address, std::string_view& style) {
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), field.size() + 1));
    const std::size_t equals = field.find('=');
    const std::string_view name = field.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : field.substr(equals + 1);
    if (name == "endpoint") {
      LOCI_RETURN_IF_ERROR(take_endpoint(value, address));
    } else if (name == "region") {
      LOCI_RETURN_IF_ERROR(take_region(value, address));
    } else if (name == "style" && (value == "path" || value == "virtual")) {
      style = value;
    } else {
      return invalid_argument(fmt::format(
          "expected endpoint=URL, region=NAME or style=path|virtual after the ?, found a field '{}'", name));
    }
  }
  return {};
}

// What the URL does not say.
Status take_defaults(const S3Environment& environment, std::string_view style, S3Address& address) {
  const bool is_amazon = address.endpoint.empty();
  if (address.region.empty()) {
    std::string region = environment("AWS_REGION");
    if (region.empty()) region = environment("AWS_DEFAULT_REGION");
    if (region.empty() && !is_amazon) region = "us-east-1";
    if (region.empty())
      return invalid_argument(
          "expected ?region=NAME, or AWS_REGION in the environment, or ?endpoint=URL of another store than "
          "Amazon's; found none of them");
    LOCI_RETURN_IF_ERROR(take_region(region, address));
  }
  if (is_amazon)
    address.endpoint = fmt::format("https://s3.{}.amazonaws.com{}", address.region,
                                   address.region.starts_with("cn-") ? ".cn" : "");
  // (A certificate for *.HOST is not for a name with more dots.)
  const bool has_dots = address.bucket.find('.') != std::string::npos;
  address.bucket_in_host = style.empty() ? is_amazon && !has_dots : style == "virtual";
  if (address.bucket_in_host && is_number(address.endpoint))
    return invalid_argument(
        fmt::format("expected an endpoint with a name of a host, as style=virtual puts the bucket in front "
                    "of it; found {}: "
                    "leave style out, or give style=path",
                    address.endpoint));
  return {};
}

}  // namespace

std::string s3_process_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string S3Address::url(std::string_view name) const {
  if (!bucket_in_host) return endpoint + path(name);
  const std::size_t host = endpoint.find("://") + 3;
  return fmt::format("{}{}.{}/{}{}", endpoint.substr(0, host), bucket, endpoint.substr(host), prefix, name);
}

std::string S3Address::path(std::string_view name) const {
  return fmt::format("/{}/{}{}", bucket, prefix, name);
}

std::string S3Address::shown() const {
  return fmt::format("s3://{}/{}?endpoint={}&region={}&style={}", bucket, prefix, endpoint, region,
                     bucket_in_host ? "virtual" : "path");
}

Result<S3Address> parse_s3_address(std::string_view url, const S3Environment& environment) {
  if (url.size() > kUrlBytesMax)
    return invalid_argument(
        fmt::format("expected at most {} characters, found {}", kUrlBytesMax, url.size()));
  if (!url.starts_with("s3://")) return invalid_argument(fmt::format("expected {}", kForm));
  // Errors are logged, so what may be a secret is not repeated in one.
  if (url.find('@') != std::string_view::npos)
    return invalid_argument(
        fmt::format("expected {} without a user, a password or any other '@': the store's keys are read from "
                    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from AWS's file of credentials",
                    kForm));
  url.remove_prefix(5);
  const std::string_view place = url.substr(0, url.find('?'));
  url.remove_prefix(std::min(url.size(), place.size() + 1));
  const std::size_t slash = place.find('/');
  S3Address address;
  std::string_view style;
  LOCI_RETURN_IF_ERROR(take_bucket(place.substr(0, slash), address));
  LOCI_RETURN_IF_ERROR(take_prefix(slash == std::string_view::npos ? "" : place.substr(slash + 1), address));
  LOCI_RETURN_IF_ERROR(take_query(url, address, style));
  LOCI_RETURN_IF_ERROR(take_defaults(environment, style, address));
  return address;
}

}  // namespace loci
