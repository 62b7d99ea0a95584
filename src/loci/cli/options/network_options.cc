// SPDX-License-Identifier: Apache-2.0
// Where the server listens, and the limits of connections and requests.
#include <string>
#include <string_view>
#include <vector>

#include "loci/cli/option_checks.h"
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"
#include "loci/serve/http/page_guard.h"

namespace loci {
namespace {

// As a browser sends it: scheme://host or scheme://host:port, or null (of a page that is a file).
bool is_origin(std::string_view text) {
  if (text == "*" || text == "null") return true;
  const std::size_t scheme = text.find("://");
  if (scheme == 0 || scheme == std::string_view::npos) return false;
  const std::string_view host = text.substr(scheme + 3);
  return !host.empty() && host.find_first_of("/?#@* ") == std::string_view::npos;
}

Result<std::vector<std::string>> parse_origins(std::vector<std::string> origins) {
  for (const std::string& origin : origins) {
    if (!is_origin(origin))
      return invalid_argument(fmt::format(
          "expected * or origins such as https://chat.example, without a path, found \"{}\"", origin));
  }
  return origins;
}

const std::vector<std::string>& same_list(const std::vector<std::string>& list) { return list; }

Option host_option(const std::string& group) {
  Option host = text_option({group, "--host", "the address to listen on; 0.0.0.0 listens on every interface"},
                            "ADDRESS", [](auto& flags) -> auto& { return flags.http.host; });
  host.set = [set = host.set](ServerConfig& flags, const std::string& text) -> Status {
    if (text.empty()) return invalid_argument(kNoHost);
    return set(flags, text);
  };
  return host;
}

Option page_option(const std::string& group) {
  return switch_option(
      {group, "--page", "show web browsers a page at /: a chat, and a picture of where state is kept"},
      [](auto& flags) -> auto& { return flags.page; });
}

Option cors_option(const std::string& group) {
  return list_option(
      {group, "--cors-origin",
       "the origins (https://chat.example) whose web pages may use the API; * allows every origin"},
      "ORIGIN", [](auto& flags) -> auto& { return flags.cors_origins; }, parse_origins, same_list);
}

}  // namespace

std::vector<Option> network_options() {
  const std::string group = "network";
  return {
      host_option(group),
      integer_option(
          {group, "--port", "the port to listen on; 0 takes a free one, which is printed at start"},
          [](auto& flags) -> auto& { return flags.http.port; }, 0, 65535),
      guard_option(
          {group, "--tls-cert",
           "a PEM file with the server's certificate, followed by those that lead from it to an authority; "
           "with it and --tls-key the server speaks HTTPS; the server reads the file again when it changes"},
          [](auto& flags) -> auto& { return flags.http.tls.certificate; }),
      guard_option(
          {group, "--tls-key", "a PEM file with the certificate's private key, without a pass phrase"},
          [](auto& flags) -> auto& { return flags.http.tls.key; }),
      page_option(group),
      cors_option(group),
      list_option(
          {group, "--allowed-host",
           "further host names by which clients may call a server that has no API keys; a request "
           "for any other name gets a 403"},
          "NAME", [](auto& flags) -> auto& { return flags.allowed_hosts; }, parse_host_names, same_list),
      switch_option(
          {group, "--lenient",
           "ignore fields of requests that the server knows and does not serve, and warn once of each such "
           "field in the log; off refuses such requests. Fields that it does not know are ignored "
           "in any case"},
          [](auto& flags) -> auto& { return flags.lenient; }),
      bytes_option(
          {group, "--max-body", "the largest body of a request; a larger one gets a 413"},
          [](auto& flags) -> auto& { return flags.http.limits.body_bytes_max; }, 1),
      bytes_option(
          {group, "--max-bodies",
           "the memory for the bodies of all requests together; a request beyond it gets a 503"},
          [](auto& flags) -> auto& { return flags.http.limits.bodies_bytes_max; }, 1),
      bytes_option(
          {group, "--max-header", "the largest header of a request; a larger one gets a 431"},
          [](auto& flags) -> auto& { return flags.http.limits.header_bytes_max; }, 1024, 16 << 20),
      integer_option(
          {group, "--max-connections",
           "the most connections at once; a further one closes the one that has waited longest for a "
           "request; if all have requests, it gets a 503, or with TLS is closed"},
          [](auto& flags) -> auto& { return flags.http.limits.connections_max; }, 1, 1'000'000),
      duration_option({group, "--header-timeout",
                       "how long a request's header may take to arrive, and before it a TLS handshake; a "
                       "late header gets a 408, a late handshake ends the connection"},
                      [](auto& flags) -> auto& { return flags.http.limits.header_timeout; }),
      duration_option(
          {group, "--body-timeout", "how long a request's body may take to arrive; a late one gets a 408"},
          [](auto& flags) -> auto& { return flags.http.limits.body_timeout; }),
      duration_option({group, "--body-stall-timeout",
                       "how long a client may send nothing of a body; after that the request gets a 408"},
                      [](auto& flags) -> auto& { return flags.http.limits.body_stall_timeout; }),
      duration_option({group, "--idle-timeout", "how long a connection without requests stays open"},
                      [](auto& flags) -> auto& { return flags.http.limits.idle_timeout; }),
      duration_option({group, "--write-timeout",
                       "how long a client may read nothing of a reply; after that the server cuts it off"},
                      [](auto& flags) -> auto& { return flags.http.limits.write_timeout; }),
      limit_duration_option({group, "--request-timeout",
                             "how long a whole reply may take; a longer one ends with a 408, or in a stream "
                             "with an error event; 0 sets no limit"},
                            [](auto& flags) -> auto& { return flags.request_timeout; }),
      duration_option({group, "--drain-timeout",
                       "how long running replies may go on after the server is told to stop; after that they "
                       "are cut off"},
                      [](auto& flags) -> auto& { return flags.drain_timeout; }),
  };
}

}  // namespace loci
