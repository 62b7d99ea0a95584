// SPDX-License-Identifier: Apache-2.0
// `loci bench-compute`: its own parser reads what follows the command's name.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "loci/cli/bench_compute.h"
#include "loci/cli/commands.h"
#include "loci/cli/help.h"

namespace loci {

void add_bench_compute_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("bench-compute", "measure the backend alone: decode, prefill, streams");
  command->group(kMeasureGroup);
  command->prefix_command();
  command->set_help_flag();
  command->callback([command, &exit_code] {
    const std::vector<std::string> rest = command->remaining();
    std::vector<const char*> arguments = {"loci bench-compute"};
    for (const std::string& argument : rest) arguments.push_back(argument.c_str());
    exit_code = run_bench_compute(static_cast<int>(arguments.size()), arguments.data());
  });
}

}  // namespace loci
