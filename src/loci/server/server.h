// SPDX-License-Identifier: Apache-2.0
// A server from a plain configuration: `loci serve` runs one, and a test can run one without a process of its
// own. Its life is
//
//     open()    the store, the keys and the port; requests are answered 503 from here on
//     load()    the model, the engine, its tiers; then requests are served
//     drain()   running replies end, new requests are refused
//
// run_server.h goes through these and obeys an operator's signals.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <spdlog/logger.h>

#include "loci/base/status.h"
#include "loci/server/server_config.h"
#include "loci/server/server_report.h"

namespace loci {

struct ServerParts;

// Returns the path of the model's file or directory. It may take long (a download), and reports its progress
// to `say`.
using FindModel = std::function<Result<std::string>(const std::function<void(const std::string&)>& say)>;

// Waits for at most this time. True: the operator wants the server to stop; while it drains: to stop at once.
using StopWithin = std::function<bool(std::chrono::milliseconds)>;

enum class ServerEnd : std::uint8_t { kDrained, kCutOff };  // kCutOff: replies were cut off, as asked

// Thread-compatible: one thread opens, loads and drains; requests are served by other threads. The destructor
// stops everything that runs and cuts replies off.
class Server {
 public:
  // Errors name the option at fault: cluster_secret, join, advertise, store, api_keys, host, port, tls_cert,
  // tls_key, traces, trace_headers.
  static Result<std::unique_ptr<Server>> open(ServerConfig config, std::shared_ptr<spdlog::logger> log);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Call it once. Cannot be interrupted. Errors name the option at fault, or what is wrong with the model;
  // after one only the destructor may be called.
  Status load(const FindModel& find_model);
  // After load().
  const ServerReport& report() const { return report_; }
  std::uint16_t port() const;

  // Refuses new requests, waits until running replies have ended or ServerConfig::drain_timeout is over, and
  // closes all connections.
  ServerEnd drain(const StopWithin& stop_within);

 private:
  explicit Server(std::unique_ptr<ServerParts> parts);

  std::unique_ptr<ServerParts> parts_;
  ServerReport report_;
};

}  // namespace loci
