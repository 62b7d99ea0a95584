// SPDX-License-Identifier: Apache-2.0
// The HTTP server: accepts connections on one network thread and hands their requests to a handler.
#pragma once

#include <spdlog/logger.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/serve/http/connection.h"
#include "loci/serve/http/tls_identity.h"

namespace loci {

// listen(), stop() and the destructor: the owner's thread. The handler is called on the network thread.
class HttpServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    std::uint16_t port = 8080;  // 0: one that is free
    TlsFiles tls;               // none: plain HTTP, or what `tls_context` says
    TlsContext tls_context;     // in place of files
    HttpLimits limits;
    // Bytes of a reply that the system takes before it can send them; 0: as many as it likes, which is
    // megabytes (net.ipv4.tcp_wmem), all of them computed for a client that may never read.
    int unsent_bytes_max = 256 << 10;
  };

  HttpServer(const Options& options, const Clock& clock, ServeMetrics& metrics,
             std::shared_ptr<spdlog::logger> log);
  ~HttpServer();  // as stop(0)

  // Binds, listens and starts the network thread.
  // Errors: kInvalidArgument (the host is no address of this machine), kUnavailable (address in use); those
  // of the certificate (tls.h).
  Status listen(ExchangeHandler handler);
  std::uint16_t port() const { return port_; }
  boost::asio::io_context& io() { return io_; }

  // Accepts no more, lets answers that are being written end for at most `grace`, then closes all.
  void stop(Nanos grace);

 private:
  boost::asio::awaitable<void> accept_loop();
  boost::asio::awaitable<void> serve(std::shared_ptr<Connection> connection);
  boost::asio::awaitable<void> turn_away(std::shared_ptr<boost::asio::ip::tcp::socket> socket);
  boost::asio::awaitable<void> close_all(Nanos grace);

  Options options_;
  std::shared_ptr<spdlog::logger> log_;
  ServeMetrics& metrics_;
  TlsIdentity tls_;
  ConnectionContext context_;  // outlives io_, whose last coroutines give back what they hold of it
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::ip::tcp::acceptor acceptor_{io_};
  std::set<Connection*> connections_;  // network thread only
  std::size_t turned_away_ = 0;        // being told so
  std::uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace loci
