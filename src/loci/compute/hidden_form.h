// SPDX-License-Identifier: Apache-2.0
// Hidden states as a form of a block's state (HCache §3.2): the rows that the products of K and V consume,
// from which both are made again by two products instead of all of a layer's.
#pragma once

#include <cstdint>

#include "loci/base/status.h"
#include "loci/compute/backend.h"

namespace loci {

// Sizes of one layer, for one token.
struct HiddenForm {
  std::uint64_t hidden_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::uint64_t slice_bytes() const { return hidden_bytes * kBlockTokens; }  // of a block
};

// The form of the backend's state. Errors, kInvalidArgument: the backend takes no hidden states, layers have
// windows, or the form is not smaller than keys and values (both sizes are named).
Result<HiddenForm> hidden_form(const BackendInfo& backend);

}  // namespace loci
