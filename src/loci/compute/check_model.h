// SPDX-License-Identifier: Apache-2.0
// What every backend asks of a model before it takes its weights: sizes that fit together, and tensors of the
// shapes that model_spec.h gives them.
#pragma once

#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/model/model_spec.h"

namespace loci {

// Errors: kInvalidArgument naming the size or the tensor.
Status check_model(const ModelSpec& spec);

// What the model's state knows of positions, whatever processor computes it.
Positions positions_of(const ModelSpec& spec);

}  // namespace loci
