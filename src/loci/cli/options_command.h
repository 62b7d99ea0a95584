// SPDX-License-Identifier: Apache-2.0
// The table of options on the command line: `loci serve`'s flags, and `loci options`.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/cli/options/configuration.h"

namespace CLI {
class App;
}

namespace loci {

// "NAME=value" of each variable of the process.
std::vector<std::string> whole_environment();

// What the command line said. configuration() checks its values.
class ServeArguments {
 public:
  // Adds a flag for each option, and --config, --print-config.
  explicit ServeArguments(CLI::App& command);

  bool print_config() const { return print_config_; }
  // With the environment and the file. Errors: make_configuration(), read_options_file().
  Result<Configuration> configuration() const;

 private:
  std::map<std::string, std::string> given_;  // by flag
  std::string config_;
  bool config_given_ = false;
  bool print_config_ = false;
};

}  // namespace loci
