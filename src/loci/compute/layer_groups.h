// SPDX-License-Identifier: Apache-2.0
// Which layers of a model share block tables: those whose attention spans the same tokens.
#pragma once

#include <vector>

#include "loci/compute/backend.h"
#include "loci/model/model_spec.h"

namespace loci {

// The groups of the model's layers, the widest window first (all tokens before any window), without
// sizes. A model with more than kLayerGroupsMax windows has its narrowest ones in one group, whose window
// is the widest of them: a slot more than needed costs memory, never correctness.
std::vector<LayerGroup> layer_groups(const ModelSpec& spec);

}  // namespace loci
