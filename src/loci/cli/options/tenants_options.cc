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
      guard_option({"tenants", "--api-keys",
                    "the file of API keys and limits, which `loci keys` writes (docs/tenants.md): only "
                    "clients with a key are served; the server reads the file again when it changes"},
                   [](auto& flags) -> auto& { return flags.keys.file; }),
      path_option({"tenants", "--public",
                   "a file with a prefix that all tenants share, as text or as chat messages; the server "
                   "computes it before it is ready (docs/tenants.md)"},
                  [](auto& flags) -> auto& { return flags.public_prefix; }),
      choice_option(
          {"tenants", "--metrics-access",
           "who may read /metrics, whose figures are those of all tenants together: everybody (anyone), or "
           "keys of operators (operators)"},
          "WHO", {"anyone", "operators"}, [](auto& flags) -> auto& { return flags.metrics_access; },
          parse_access, access_name),
  };
}

}  // namespace loci
