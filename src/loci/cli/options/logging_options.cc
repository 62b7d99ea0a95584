// What is written about the server's work.
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"

namespace loci {

std::vector<Option> logging_options() {
  return {
      choice_option({"logging", "--log-level", "how much is logged"}, "LEVEL",
                    {"trace", "debug", "info", "warn", "error", "off"},
                    [](auto& flags) -> auto& { return flags.log_level; }),
  };
}

}  // namespace loci
