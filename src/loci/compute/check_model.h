// SPDX-License-Identifier: Apache-2.0
// Checks that every backend makes before it takes a model's weights: the sizes fit together, and tensors have
// the shapes that model_spec.h gives them.
#pragma once

#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/model/model_spec.h"

namespace loci {

// Errors: kInvalidArgument naming the size or the tensor.
Status check_model(const ModelSpec& spec);

// How the model's state depends on positions; the same on every processor.
Positions positions_of(const ModelSpec& spec);

}  // namespace loci
