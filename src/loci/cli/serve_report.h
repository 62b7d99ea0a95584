// SPDX-License-Identifier: Apache-2.0
// What `loci serve` prints at start: the configuration in effect, for people.
#pragma once

#include <cstdint>
#include <string>

#include "loci/base/clock.h"
#include "loci/cli/serve_flags.h"
#include "loci/serve/log_line.h"
#include "loci/serve/served_model.h"

namespace loci {

struct LoadedConfiguration {
  CoreConfig core;
  BackendInfo backend;
  std::string device;  // MadeBackend::chosen
  std::string pool_reason;
  std::string host_tier, disk_tier;  // StateTiers
  std::string shared_tier;           // SharedTier::summary
  std::string costs_source;
  std::string hidden;    // HiddenChoice::reason
  std::string sampling;  // SamplingChoice
};

std::string describe_configuration(const ServeFlags& flags, const LoadedConfiguration& loaded,
                                   const ServedModel& served);
// The same as a line of the log.
LogLine configuration_line(const ServeFlags& flags, const LoadedConfiguration& loaded,
                           const ServedModel& served);
// `http`: with the port that was found.
LogLine ready_line(const HttpServer::Options& http, Nanos loading);
// The address, and a request to try.
std::string describe_ready(const HttpServer::Options& http, const ServedModel& served, Nanos loading);

}  // namespace loci
