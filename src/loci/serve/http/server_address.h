// SPDX-License-Identifier: Apache-2.0
// Where a server is, and how it is spoken to: what the commands that are clients make of a URL.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/serve/http/tls.h"

namespace loci {

// As URLs and Host headers have it: "localhost:8080", "[::1]:8080".
std::string authority_of(std::string_view host, std::string_view port);
std::string authority_of(std::string_view host, std::uint16_t port);

// Whether who listens there is reached at each address of its machine, and nobody by this one.
bool is_any_address(std::string_view host);

struct ServerAddress {
  std::string host;
  std::string port;  // a number from 1 to 65535
  std::string key;   // an API key, sent as a bearer; empty: none is sent
  TlsContext tls;    // null: plain HTTP

  std::uint16_t port_number() const;
};

// "http://127.0.0.1:8080", "localhost:9000", "https://chat.example", "http://[::1]"; where no port is given
// it is 443 of https and 8080 of http. For https the server's certificate must lead to one of `authorities`
// (a PEM file; empty: those that the system trusts). Errors: kInvalidArgument; those of
// make_client_tls().
Result<ServerAddress> parse_server_url(std::string_view url, const std::string& authorities);

inline constexpr const char* kTlsCaHelp =
    "PEM file of the certificates that an https:// server's must lead to; without it those that the system "
    "trusts";

}  // namespace loci
