// SPDX-License-Identifier: Apache-2.0
#include "loci/server/run_server.h"

#include <chrono>
#include <cstdlib>
#include <future>
#include <utility>

namespace loci {
namespace {

Status load_or_leave(Server& server, const FindModel& find_model, spdlog::logger& log,
                     const OperatorSignals& signals) {
  auto loading = std::async(std::launch::async, [&] { return server.load(find_model); });
  while (loading.wait_for(std::chrono::milliseconds(0)) != std::future_status::ready) {
    if (signals.stop_within(std::chrono::milliseconds(20))) {
      log.info("stopped while the model was loading");
      end_log(0);
      std::_Exit(0);
    }
  }
  return loading.get();
}

}  // namespace

Result<ServerEnd> run_server(const ServerConfig& config, const FindModel& find_model,
                             std::shared_ptr<spdlog::logger> log, const OperatorSignals& signals,
                             const std::function<void(const ServerReport&)>& ready) {
  LOCI_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::open(config, log));
  LOCI_RETURN_IF_ERROR(load_or_leave(*server, find_model, *log, signals));
  ready(server->report());
  while (!signals.stop_within(std::chrono::minutes(1))) {
  }
  return server->drain([&signals](std::chrono::milliseconds time) { return signals.stop_within(time); });
}

}  // namespace loci
