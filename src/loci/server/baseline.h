// SPDX-License-Identifier: Apache-2.0
// A paper's set of policies (policy/baselines.h) as a server's configuration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/server/server_config.h"

namespace loci {

struct ServerBaseline {
  // The defaults, and what the baseline decides.
  ServerConfig config;
  // What it decides, by the options' names in the configuration file ("eviction"). How much memory there is,
  // is the operator's but where the paper's system lacks a tier.
  std::vector<std::string_view> options;
};

// Pure. Errors: kInvalidArgument (field "baseline") naming all that there are.
Result<ServerBaseline> make_server_baseline(const std::string& name);

}  // namespace loci
