// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace loci {
namespace {

constexpr const char* kForm = "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS";
constexpr std::size_t kUrlBytesMax = 4096;
constexpr std::uint32_t kDatabaseMax = 1u << 20;
// No error repeats a part of the URL: where a sign is missing, a password stands in another's place.

std::optional<std::uint32_t> number(std::string_view text, std::uint32_t most) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

std::optional<std::string> unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size()) return std::nullopt;
    const auto [end, error] = std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16);
    if (error != std::errc() || end != text.data() + i + 3) return std::nullopt;
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

Status take_login(std::string_view login, RedisAddress& address) {
  const std::size_t colon = login.find(':');
  if (colon == std::string_view::npos)
    return invalid_argument("expected USER:PASSWORD or :PASSWORD before the @, found no colon");
  const std::optional<std::string> user = unescaped(login.substr(0, colon));
  const std::optional<std::string> password = unescaped(login.substr(colon + 1));
  if (!user || !password || password->empty())
    return invalid_argument(
        "expected a password before the @, and two hexadecimal digits after each % in it; found none, or "
        "others");
  address.user = *user;
  address.password = *password;
  return {};
}

Status take_place(std::string_view place, RedisAddress& address) {
  std::string_view port;
  if (!place.empty() && place.front() == '[') {
    const std::size_t end = place.find(']');
    if (end == std::string_view::npos)
      return invalid_argument("expected a ] after the address of IPv6, found none");
    address.host = place.substr(1, end - 1);
    const std::string_view rest = place.substr(end + 1);
    if (!rest.empty() && rest.front() != ':') return invalid_argument("expected :PORT after the ]");
    if (!rest.empty()) port = rest.substr(1);
    if (!rest.empty() && port.empty())
      return invalid_argument("expected a port from 1 to 65535 after the :, found none");
  } else {
    const std::size_t colon = place.find(':');
    address.host = place.substr(0, colon);
    if (colon != std::string_view::npos) {
      port = place.substr(colon + 1);
      if (port.empty()) return invalid_argument("expected a port from 1 to 65535 after the :, found none");
    }
  }
  const bool plain = std::all_of(address.host.begin(), address.host.end(), [](char c) {
    return c > ' ' && c < 127 && std::string_view("%?#[]").find(c) == std::string_view::npos;
  });
  if (address.host.empty() || !plain)
    return invalid_argument(fmt::format(
        "expected a host's name or address as in {}; found none, or another character in it", kForm));
  if (port.empty()) return {};
  const std::optional<std::uint32_t> value = number(port, 65535);
  if (!value || *value == 0)
    return invalid_argument(
        "expected a port from 1 to 65535 after the host's :, found something else (a password ends with an "
        "@)");
  address.port = static_cast<std::uint16_t>(*value);
  return {};
}

}  // namespace

std::string RedisAddress::shown() const {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}/{}", tls ? "rediss" : "redis", v6 ? "[" : "", host, v6 ? "]" : "", port,
                     database);
}

Result<RedisAddress> parse_redis_address(std::string_view url) {
  RedisAddress address;
  if (url.size() > kUrlBytesMax)
    return invalid_argument(
        fmt::format("expected at most {} characters, found {}", kUrlBytesMax, url.size()));
  if (url.starts_with("rediss://")) {
    address.tls = true;
    url.remove_prefix(9);
  } else if (url.starts_with("redis://")) {
    url.remove_prefix(8);
  } else {
    return invalid_argument(fmt::format("expected {}; or s3://BUCKET[/PREFIX] of an S3 store", kForm));
  }
  if (const std::size_t at = url.rfind('@'); at != std::string_view::npos) {
    LOCI_RETURN_IF_ERROR(take_login(url.substr(0, at), address));
    url.remove_prefix(at + 1);
  }
  const std::size_t slash = url.find('/');
  LOCI_RETURN_IF_ERROR(take_place(url.substr(0, slash), address));
  const std::string_view database = slash == std::string_view::npos ? "" : url.substr(slash + 1);
  if (database.empty()) return address;
  const std::optional<std::uint32_t> value = number(database, kDatabaseMax);
  if (!value)
    return invalid_argument(fmt::format(
        "expected a database's number, at most {}, after the /, found something else", kDatabaseMax));
  address.database = *value;
  return address;
}

}  // namespace loci
