// SPDX-License-Identifier: Apache-2.0
// Where an HttpServer (server.h) listens, and what it bounds.
#pragma once

#include <cstdint>
#include <string>

#include "loci/serve/http/http_message.h"
#include "loci/serve/http/tls.h"

namespace loci {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;  // 0: one that is free
  TlsFiles tls;               // none: plain HTTP, or what `tls_context` says
  TlsContext tls_context;     // in place of files
  HttpLimits limits;
  // Bytes of a reply that the system takes before it can send them; 0: as many as it likes, which is
  // megabytes (net.ipv4.tcp_wmem), all of them computed for a client that may never read.
  int unsent_bytes_max = 256 << 10;
};

}  // namespace loci
