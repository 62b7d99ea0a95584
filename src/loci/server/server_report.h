// SPDX-License-Identifier: Apache-2.0
// What a server reports about itself when it is ready: the configuration in effect, and where it answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/compute/backend.h"
#include "loci/engine/core/core.h"
#include "loci/serve/generation/served_model.h"
#include "loci/server/server_config.h"

namespace loci {

// "context 8,192 tokens (context)". A row without a name continues the row before.
struct ReportRow {
  std::string name, value;
  std::vector<std::string> options;  // the options that change it, by their names in the configuration file
};

struct ServerReport {
  std::vector<ReportRow> rows;
  std::string note;  // what the operator should know; empty: nothing
  std::string url;
  bool has_chat_template = false;
  bool has_page = false;
  bool has_keys = false;  // clients need one
  Nanos loading = 0;      // how long it took
};

// What was found and chosen while the server loaded.
struct LoadedEngine {
  CoreConfig core;
  BackendInfo backend;
  Nanos stall_limit = 0;  // 0: none
  std::string device;     // MadeBackend::chosen
  std::string pool_reason;
  std::string host_tier, disk_tier;  // StateTiers
  std::string shared_tier;           // SharedTier::summary
  std::uint16_t peer_port = 0;       // 0: it gives no state to members
  std::string costs_source;
  std::string hidden;    // HiddenChoice::reason
  std::string sampling;  // SamplingChoice
};

// The server listens on `port`.
ServerReport server_report(const ServerConfig& config, const LoadedEngine& loaded, const ServedModel& served,
                           std::uint16_t port, Nanos loading);

}  // namespace loci
