// SPDX-License-Identifier: Apache-2.0
// Where the server listens, and the limits of connections and requests.
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"

namespace loci {

std::vector<Option> network_options() {
  const std::string group = "network";
  return {
      text_option({group, "--host", "address to listen on; 0.0.0.0: every interface"}, "ADDRESS",
                  [](auto& flags) -> auto& { return flags.http.host; }),
      integer_option(
          {group, "--port", "port to listen on; 0: one that is free, printed at start"},
          [](auto& flags) -> auto& { return flags.http.port; }, 0, 65535),
      path_option(
          {group, "--tls-cert",
           "speak HTTPS: the server's certificate and those that lead to an authority, PEM; read again "
           "when it changes"},
          [](auto& flags) -> auto& { return flags.http.tls.certificate; }),
      path_option({group, "--tls-key", "the certificate's private key, PEM without a pass phrase"},
                  [](auto& flags) -> auto& { return flags.http.tls.key; }),
      list_option({group, "--cors-origin",
                   "web pages that may use the API, by their origins (https://chat.example); *: all"},
                  "ORIGIN", [](auto& flags) -> auto& { return flags.cors_origins; }),
      list_option({group, "--allowed-host",
                   "names under which clients reach a server without keys, besides private ones"},
                  "NAME", [](auto& flags) -> auto& { return flags.allowed_hosts; }),
      switch_option(
          {group, "--lenient",
           "ignore fields of requests that are not supported, with one warning each; off: refuse them"},
          [](auto& flags) -> auto& { return flags.lenient; }),
      bytes_option({group, "--max-body", "largest body of a request"},
                   [](auto& flags) -> auto& { return flags.http.limits.body_bytes_max; }),
      bytes_option({group, "--max-bodies", "memory for all requests' bodies together; more gets a 503"},
                   [](auto& flags) -> auto& { return flags.http.limits.bodies_bytes_max; }),
      bytes_option(
          {group, "--max-header", "largest header of a request"},
          [](auto& flags) -> auto& { return flags.http.limits.header_bytes_max; }, 1024, 16 << 20),
      integer_option(
          {group, "--max-connections", "most connections at once; more get a 503 (with TLS: are closed)"},
          [](auto& flags) -> auto& { return flags.http.limits.connections_max; }, 1, 1'000'000),
      duration_option({group, "--header-timeout",
                       "time for a request's header to arrive, and before it for a TLS handshake"},
                      [](auto& flags) -> auto& { return flags.http.limits.header_timeout; }),
      duration_option({group, "--body-timeout", "time for a request's body to arrive"},
                      [](auto& flags) -> auto& { return flags.http.limits.body_timeout; }),
      duration_option(
          {group, "--body-stall-timeout", "how long a body may send nothing before it is given up"},
          [](auto& flags) -> auto& { return flags.http.limits.body_stall_timeout; }),
      duration_option({group, "--idle-timeout", "how long a connection without requests is kept"},
                      [](auto& flags) -> auto& { return flags.http.limits.idle_timeout; }),
      duration_option({group, "--write-timeout", "how long a client may take nothing before it is cut off"},
                      [](auto& flags) -> auto& { return flags.http.limits.write_timeout; }),
      limit_duration_option({group, "--request-timeout", "time for a whole reply; 0: no limit"},
                            [](auto& flags) -> auto& { return flags.request_timeout; }),
      duration_option({group, "--drain-timeout", "how long running replies may go on after a stop"},
                      [](auto& flags) -> auto& { return flags.drain_timeout; }),
  };
}

}  // namespace loci
