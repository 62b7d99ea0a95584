// SPDX-License-Identifier: Apache-2.0
// How long a sequence may be, and what happens to a longer one.
#pragma once

#include "loci/engine/core/core.h"
#include "loci/serve/generation/overflow.h"
#include "loci/server/server_config.h"

namespace loci {

// Sequences are as long as the context and the memory of groups that keep all tokens allow.
OverflowRule overflow_rule(const ServerConfig& config, const CoreConfig& core);

}  // namespace loci
