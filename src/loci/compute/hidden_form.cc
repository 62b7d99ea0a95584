// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/hidden_form.h"

#include <fmt/format.h>

namespace loci {

Result<HiddenForm> hidden_form(const BackendInfo& backend) {
  if (!backend.projects) {
    return invalid_argument(fmt::format("the {} backend does not project hidden states", backend.name));
  }
  if (backend.groups.size() > 1 || backend.groups.front().window != 0) {
    return invalid_argument(
        "expected a model whose layers see all tokens; this one's have windows, whose state is not kept as "
        "hidden states");
  }
  const HiddenForm form{backend.hidden_row_bytes, backend.groups.front().layer_slice_bytes / kBlockTokens};
  if (form.hidden_bytes < form.kv_bytes) return form;
  return invalid_argument(fmt::format(
      "hidden states of this model are not smaller than its keys and values: {} bytes a token and "
      "layer, keys and values {}",
      form.hidden_bytes, form.kv_bytes));
}

}  // namespace loci
