// SPDX-License-Identifier: Apache-2.0
// The forward pass of a ModelSpec in float64, as plainly as it can be written: no cache, no batch, no
// kernels, no rounding but float64's own. It is the oracle of the backends' tests, and is itself
// compared with Hugging Face transformers (tests/golden/).
#pragma once

#include <span>
#include <vector>

#include "loci/base/ids.h"
#include "loci/model/model_spec.h"

namespace loci {

// What a backend rounds on purpose can be rounded here too, so that a test sees only its faults.
enum class ReferenceState {
  kExact,
  kF16,  // keys (after rotation) and values are rounded to float16 before attention reads them
};

// Logits [tokens.size() * spec.vocabulary], row-major: row i follows tokens[0..i]. Positions count from
// zero. Pure and thread-safe; the file behind the spec's tensors must stay open. Weights are decoded
// each time they are used, so memory is a few activations, and time about 2 * parameters * tokens
// operations at a compiler's, not a kernel's, speed.
//
// `router_margins`, where given, gets for each token by how much the last expert that takes part was
// ahead of the first that does not, the least over the layers (infinite without mixtures): a smaller
// error than that cannot change the choice.
std::vector<double> reference_logits(const ModelSpec& spec, std::span<const TokenId> tokens,
                                     ReferenceState state = ReferenceState::kExact,
                                     std::vector<double>* router_margins = nullptr);

}  // namespace loci
