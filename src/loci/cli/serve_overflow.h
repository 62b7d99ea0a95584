// SPDX-License-Identifier: Apache-2.0
// --context-overflow: how long a sequence may be, and what becomes of one that is longer.
#pragma once

#include "loci/cli/serve_flags.h"
#include "loci/engine/core/core.h"
#include "loci/serve/generation/overflow.h"

namespace loci {

// Sequences are as long as the context and the memory of groups that keep all tokens allow.
OverflowRule overflow_rule(const ServeFlags& flags, const CoreConfig& core);

}  // namespace loci
