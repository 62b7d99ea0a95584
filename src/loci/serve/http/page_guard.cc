// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/page_guard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/address.hpp>

#include "loci/base/ascii.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

namespace {

constexpr std::size_t kShownBytesMax = 200;

std::optional<std::string> value_of(const HttpRequest& request, std::string_view name) {
  const std::optional<std::string_view> value = request.find(name);
  if (!value) return std::nullopt;
  return lower_ascii(*value);
}

// "localhost:8080" of "http://localhost:8080".
std::string_view authority_of(std::string_view origin) {
  const std::size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view() : origin.substr(scheme + 3);
}

// No stranger can register these: names without a dot, and those under domains that are set aside for
// machines of one network.
bool is_private_name(std::string_view name) {
  return name.find('.') == std::string_view::npos || name.ends_with(".localhost") ||
         name.ends_with(".local") || name.ends_with(".internal");
}

bool is_address(const std::string& name) {
  boost::system::error_code error;
  boost::asio::ip::make_address(name, error);
  return !error;
}

constexpr int kForbidden = 403;

}  // namespace

PageGuard::PageGuard(Rules rules) : rules_(std::move(rules)) {
  for (std::string& origin : rules_.origins) origin = lower_ascii(origin);
  for (std::string& name : rules_.host_names) name = lower_ascii(name);
  everyone_ = std::count(rules_.origins.begin(), rules_.origins.end(), "*") > 0;
}

std::optional<ApiError> PageGuard::check_host(const HttpRequest& request) const {
  if (everyone_) return std::nullopt;
  const std::string host = value_of(request, "Host").value_or("");
  if (is_own_name(host)) return std::nullopt;
  return http_error(
      kForbidden,
      fmt::format("the request is for the host '{}', which is none of this server's names; if clients "
                  "call it so, start it with the option allowed_host {}",
                  utf8_prefix(host, kShownBytesMax), utf8_prefix(host_name_of(host), kShownBytesMax)),
      "host_not_allowed");
}

std::optional<ApiError> PageGuard::check(const HttpRequest& request) const {
  if (everyone_) return std::nullopt;
  if (std::optional<ApiError> error = check_host(request)) {
    error->message += ", or with keys (option api_keys)";
    return error;
  }
  const std::optional<std::string> origin = value_of(request, "Origin");
  if (!origin || is_from_own_page(request) || !permission(request).empty()) return std::nullopt;
  const std::string shown(utf8_prefix(*origin, kShownBytesMax));
  return http_error(
      kForbidden,
      fmt::format(
          "a page of '{}' may not use this server; to allow it start the server with the option cors_origin "
          "{}, or with keys (option api_keys)",
          shown, shown),
      "origin_not_allowed");
}

std::string_view PageGuard::permission(const HttpRequest& request) const {
  if (everyone_) return "*";
  const std::optional<std::string> origin = value_of(request, "Origin");
  const auto named =
      origin ? std::find(rules_.origins.begin(), rules_.origins.end(), *origin) : rules_.origins.end();
  return named == rules_.origins.end() ? std::string_view() : std::string_view(*named);
}

bool PageGuard::is_own_name(std::string_view host) const {
  const std::string name = host_name_of(host);
  // A request of HTTP/1.0 may name no host; a browser always does.
  return name.empty() || is_address(name) || is_private_name(name) ||
         std::find(rules_.host_names.begin(), rules_.host_names.end(), name) != rules_.host_names.end();
}

bool is_from_page(const HttpRequest& request) { return request.find("Origin").has_value(); }

bool is_from_own_page(const HttpRequest& request) {
  const std::string host = value_of(request, "Host").value_or("");
  const std::optional<std::string> origin = value_of(request, "Origin");
  return !host.empty() && origin && authority_of(*origin) == host;
}

std::string host_name_of(std::string_view authority) {
  if (authority.starts_with('[')) {
    return std::string(authority.substr(1, authority.find(']') - 1));
  }
  std::string name = lower_ascii(authority.substr(0, authority.rfind(':')));
  if (name.ends_with('.')) name.pop_back();  // the root of all domains
  return name;
}

Result<std::vector<std::string>> parse_host_names(std::vector<std::string> names) {
  for (const std::string& name : names) {
    const bool has_port = name.find(':') != std::string::npos;
    if (name.empty() || name.ends_with('.') || has_port || !may_be_host(name))
      return invalid_argument(fmt::format(
          "expected host names such as chat.example, without scheme, port, star or final dot, found \"{}\"",
          utf8_prefix(name, 100)));
  }
  return names;
}

std::string machine_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

}  // namespace loci
