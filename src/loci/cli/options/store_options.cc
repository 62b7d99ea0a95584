// Conversations that the server keeps.
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"

namespace loci {

std::vector<Option> store_options() { return {}; }

}  // namespace loci
