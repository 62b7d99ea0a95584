// SPDX-License-Identifier: Apache-2.0
// Who may use the server, and how much of it.
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"

namespace loci {

std::vector<Option> tenants_options() {
  const auto parse_access = [](const std::string& name) {
    return Result<Access>(name == "operators" ? Access::kOperator : Access::kOpen);
  };
  const auto access_name = [](Access access) {
    return std::string(access == Access::kOperator ? "operators" : "anyone");
  };
  return {
      path_option({"tenants", "--api-keys",
                   "the file of API keys and limits (`loci keys`, docs/tenants.md); it is read again when it "
                   "changes"},
                  [](auto& flags) -> auto& { return flags.keys.file; }),
      path_option({"tenants", "--public",
                   "a file with a prefix that all tenants share, text or chat messages, which is computed "
                   "before the server is ready (docs/tenants.md)"},
                  [](auto& flags) -> auto& { return flags.public_prefix; }),
      choice_option(
          {"tenants", "--metrics-access", "who may read /metrics, which tells about all tenants together"},
          "WHO", {"anyone", "operators"}, [](auto& flags) -> auto& { return flags.metrics_access; },
          parse_access, access_name),
  };
}

}  // namespace loci
