// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/server_address.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <string>
#include <system_error>

namespace loci {
namespace {

bool is_port(std::string_view text) {
  std::uint32_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

}  // namespace

std::string authority_of(std::string_view host, std::string_view port) {
  return host.find(':') == host.npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::string authority_of(std::string_view host, std::uint16_t port) {
  return authority_of(host, std::to_string(port));
}

std::uint16_t ServerAddress::port_number() const {
  std::uint16_t number = 0;
  std::from_chars(port.data(), port.data() + port.size(), number);
  return number;
}

bool is_any_address(std::string_view host) { return host == "0.0.0.0" || host == "::"; }

Result<ServerAddress> parse_server_url(std::string_view url, const std::string& authorities) {
  const std::string whole(url);
  const bool is_https = url.starts_with("https://");
  if (is_https || url.starts_with("http://")) url.remove_prefix(is_https ? 8 : 7);
  while (url.ends_with('/')) url.remove_suffix(1);
  ServerAddress address{.host = {}, .port = is_https ? "443" : "8080", .key = {}, .tls = nullptr};
  std::string_view rest;
  if (url.starts_with('[')) {
    const auto end = url.find(']');
    if (end == url.npos)
      return invalid_argument(
          fmt::format("'{}': expected a ']' after the address of IPv6, found none", whole), "URL");
    address.host = url.substr(1, end - 1);
    rest = url.substr(end + 1);
  } else {
    const auto colon = url.find(':');
    address.host = url.substr(0, colon);
    rest = colon == url.npos ? std::string_view() : url.substr(colon);
  }
  if (rest.starts_with(':')) {
    address.port = rest.substr(1);
    rest = {};
  }
  const bool is_named = !address.host.empty() && rest.empty() && is_port(address.port);
  if (!is_named || address.host.find('/') != std::string::npos) {
    return invalid_argument(fmt::format("expected http://HOST:PORT or https://HOST:PORT; got '{}'", whole),
                            "URL");
  }
  if (is_https) {
    LOCI_ASSIGN_OR_RETURN(address.tls, make_client_tls(authorities));
  }
  return address;
}

}  // namespace loci
