// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/hidden_form.h"

#include <fmt/format.h>

namespace loci {

Result<HiddenForm> hidden_form(std::span<const LayerGroup> groups, std::uint64_t hidden_row_bytes) {
  if (groups.size() != 1 || groups.front().window != 0) {
    return invalid_argument(
        "expected a model whose layers see all tokens; this one's have windows, whose state is not kept as "
        "hidden states");
  }
  const HiddenForm form{hidden_row_bytes, groups.front().layer_slice_bytes / kBlockTokens};
  if (form.hidden_bytes < form.kv_bytes) return form;
  return invalid_argument(fmt::format(
      "hidden states of this model are not smaller than its keys and values: {} bytes a token and "
      "layer, keys and values {}",
      form.hidden_bytes, form.kv_bytes));
}

Result<HiddenForm> hidden_form(const BackendInfo& backend) {
  LOCI_ASSIGN_OR_RETURN(const HiddenForm form, hidden_form(backend.groups, backend.hidden_row_bytes));
  if (backend.projects) return form;
  return invalid_argument(fmt::format("the {} backend does not project hidden states", backend.name));
}

}  // namespace loci
