// SPDX-License-Identifier: Apache-2.0
// --device, --state-type and --deterministic, of the commands that make a backend without a server.
#pragma once

#include <CLI/CLI.hpp>

#include "loci/compute/make_backend.h"

namespace loci {

// `options` must outlive the parsing.
void add_device_flags(CLI::App& app, BackendOptions& options);

}  // namespace loci
