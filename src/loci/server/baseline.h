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
  // The defaults, with the options that the baseline decides set.
  ServerConfig config;
  // The options that the baseline decides, by their names in the configuration file ("eviction"). The
  // operator still decides how much memory there is, except for a tier that the paper's system lacks.
  std::vector<std::string_view> options;
};

// Pure. Errors: kInvalidArgument (field "baseline") naming all that there are.
Result<ServerBaseline> make_server_baseline(const std::string& name);

}  // namespace loci
