// SPDX-License-Identifier: Apache-2.0
// The HTTP server: accepts connections on one network thread and hands their requests to a handler.
#pragma once

#include <spdlog/logger.h>

#include <cstdint>
#include <memory>
#include <string>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/serve/http/exchange.h"
#include "loci/serve/http/http_message.h"
#include "loci/serve/http/server_options.h"
#include "loci/serve/http/tls.h"

namespace loci {

class ServeMetrics;

// listen(), stop() and the destructor: the owner's thread. The handler is called on the network thread.
class HttpServer {
 public:
  using Options = HttpServerOptions;

  HttpServer(const Options& options, const Clock& clock, ServeMetrics& metrics,
             std::shared_ptr<spdlog::logger> log);
  ~HttpServer();  // as stop(0)

  // Binds, listens and starts the network thread.
  // Errors: kInvalidArgument (the host is no address of this machine), kUnavailable (address in use); those
  // of the certificate (tls.h).
  Status listen(ExchangeHandler handler);
  std::uint16_t port() const;
  boost::asio::io_context& io();

  // Accepts no more, lets answers that are being written end for at most `grace`, then closes all.
  void stop(Nanos grace);

 private:
  struct State;  // with what Asio needs, which nobody who includes this has to compile

  std::unique_ptr<State> state_;
};

}  // namespace loci
