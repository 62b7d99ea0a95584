// SPDX-License-Identifier: Apache-2.0
// Divides a model's layers into groups that share block tables: layers whose attention spans the same tokens.
#pragma once

#include <vector>

#include "loci/compute/backend.h"
#include "loci/model/model_spec.h"

namespace loci {

// The groups of the model's layers, the widest window first (all tokens before any window), without sizes. If
// a model has more than kLayerGroupsMax windows, layers with the narrowest ones share one group, whose window
// is the widest of them: a slot more than needed costs memory, never correctness.
std::vector<LayerGroup> layer_groups(const ModelSpec& spec);

}  // namespace loci
