// Who may use the server, and how much of it.
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"

namespace loci {

std::vector<Option> tenants_options() { return {}; }

}  // namespace loci
