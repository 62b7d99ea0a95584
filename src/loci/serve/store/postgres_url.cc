// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/postgres_url.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <libpq-fe.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>

namespace loci {
namespace {

std::string quoted_setting(std::string_view value) {
  std::string out = "'";
  for (const char letter : value) {
    if (letter == '\'' || letter == '\\') out.push_back('\\');
    out.push_back(letter);
  }
  return out + "'";
}

struct FreeOptions {
  void operator()(PQconninfoOption* options) const { PQconninfoFree(options); }
};
using ConnectionOptions = std::unique_ptr<PQconninfoOption, FreeOptions>;

std::string value_of(const ConnectionOptions& options, std::string_view name) {
  for (const PQconninfoOption* option = options.get(); option && option->keyword != nullptr; ++option)
    if (name == option->keyword && option->val != nullptr) return option->val;
  return {};
}

// Of a URL that has been parsed.
Status check_places(const ConnectionOptions& options) {
  // What libpq says when it tries them would show part of the password.
  std::string hosts = "," + value_of(options, "host");
  for (std::size_t at = 0; (at = hosts.find(",@", at)) != std::string::npos;)
    hosts.erase(at + 1, 1);  // sockets
  if (hosts.find('@') != std::string::npos ||
      value_of(options, "port").find_first_not_of("0123456789,") != std::string::npos)
    return invalid_argument(
        "the URL of PostgreSQL: expected a host and a port after the password, in which / is written %2F, @ "
        "%40 and : %3A (or give it by PGPASSWORD)");
  return {};
}

Result<ConnectionOptions> parse_url(const std::string& url) {
  char* message = nullptr;
  ConnectionOptions options(PQconninfoParse(url.c_str(), &message));
  if (options) {
    LOCI_RETURN_IF_ERROR(check_places(options));
    return options;
  }
  std::string text = message != nullptr ? message : "out of memory";
  PQfreemem(message);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  // What is at fault stands at the end, in quotes: it may be the password, or the whole URL.
  text = text.substr(0, text.rfind(": \""));
  return invalid_argument("the URL of PostgreSQL: " + text);
}

}  // namespace

Result<std::string> connection_settings(const std::string& url, Nanos lock_timeout) {
  LOCI_ASSIGN_OR_RETURN(const ConnectionOptions options, parse_url(url));
  std::string out;
  for (const PQconninfoOption* option = options.get(); option->keyword != nullptr; ++option) {
    const std::string_view name = option->keyword;
    std::string value = option->val != nullptr ? option->val : "";
    if (value.empty() && name == "connect_timeout")
      value = std::to_string(std::max<Nanos>(2, lock_timeout / kNanosPerSecond));
    // A machine that is gone, or a firewall that has forgotten the connection, says nothing.
    if (value.empty() && name == "tcp_user_timeout") value = "30000";
    if (value.empty() && name == "keepalives_idle") value = "10";
    if (value.empty() && name == "keepalives_interval") value = "5";
    if (value.empty() && name == "keepalives_count") value = "4";
    if (value.empty() && name == "application_name") value = "loci";
    if (!value.empty()) out += fmt::format("{}={} ", name, quoted_setting(value));
  }
  return out;
}

bool is_loopback_host(std::string_view host) {
  if (host == "localhost" || host == "ip6-localhost" || host.ends_with(".localhost")) return true;
  const std::string text(host);
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, text.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  if (::inet_pton(AF_INET6, text.c_str(), &six) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

Result<bool> is_local_database(const std::string& url) {
  LOCI_ASSIGN_OR_RETURN(const ConnectionOptions given, parse_url(url));
  const ConnectionOptions defaults(PQconndefaults());  // of the environment
  // As libpq chooses: addresses before names.
  std::string hosts = value_of(given, "hostaddr");
  if (hosts.empty()) hosts = value_of(given, "host");
  if (hosts.empty()) hosts = value_of(defaults, "hostaddr");
  if (hosts.empty()) hosts = value_of(defaults, "host");
  std::string_view rest = hosts;
  for (;;) {
    const std::string_view host = rest.substr(0, rest.find(','));
    // No host, a folder of sockets, a socket's abstract name.
    const bool is_socket = host.empty() || host.front() == '/' || host.front() == '@';
    if (!is_socket && !is_loopback_host(host)) return false;
    if (host.size() == rest.size()) return true;
    rest.remove_prefix(host.size() + 1);
  }
}

}  // namespace loci
