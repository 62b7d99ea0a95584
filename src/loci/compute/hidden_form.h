// SPDX-License-Identifier: Apache-2.0
// Hidden states as a form of a block's state (HCache §3.2): the rows that the products of K and V consume,
// from which two products make keys and values again, instead of all products of a layer.
#pragma once

#include <cstdint>
#include <span>

#include "loci/base/status.h"
#include "loci/compute/backend.h"

namespace loci {

// Sizes of one layer, for one token.
struct HiddenForm {
  std::uint64_t hidden_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::uint64_t slice_bytes() const { return hidden_bytes * kBlockTokens; }  // bytes of one layer of a block
};

// The form of a state in these groups. Errors: kInvalidArgument if layers have windows, or if the form is not
// smaller than keys and values (naming both sizes).
Result<HiddenForm> hidden_form(std::span<const LayerGroup> groups, std::uint64_t hidden_row_bytes);
// The form of the backend's state. Errors: as above, and kInvalidArgument if the backend takes no hidden
// states.
Result<HiddenForm> hidden_form(const BackendInfo& backend);

}  // namespace loci
