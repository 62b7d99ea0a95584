// Who may use the server, and how much of it.
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"

namespace loci {

std::vector<Option> tenants_options() {
  const std::string group = "tenants";
  return {
      path_option({group, "--api-keys",
                   "the keys and limits of those who may use the server (`loci keys`, docs/tenants.md)"},
                  [](auto& flags) -> auto& { return flags.api_keys; }),
  };
}

}  // namespace loci
