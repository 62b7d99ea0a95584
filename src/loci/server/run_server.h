// SPDX-License-Identifier: Apache-2.0
// Runs a server as a process: it opens, loads, serves until an operator's signal, and drains.
#pragma once

#include <functional>
#include <memory>

#include "loci/base/status.h"
#include "loci/server/process.h"
#include "loci/server/server.h"

namespace loci {

// Returns when the server has stopped; kCutOff if a second signal came while it drained. A signal while the
// model loads ends the process at once, with exit code 0: loading cannot be interrupted. `ready` is called
// once requests are served. Errors: those of Server::open() and load().
Result<ServerEnd> run_server(const ServerConfig& config, const FindModel& find_model,
                             std::shared_ptr<spdlog::logger> log, const OperatorSignals& signals,
                             const std::function<void(const ServerReport&)>& ready);

}  // namespace loci
