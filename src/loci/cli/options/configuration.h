// SPDX-License-Identifier: Apache-2.0
// The effective configuration of a server: flags go before the environment, the environment before the
// file, the file before OpenTelemetry's variables (otel_environment.h), these before the defaults. Every
// value of the file is checked, even if another one goes before it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/cli/options/option.h"
#include "loci/server/server_config.h"

namespace loci {

struct ConfigurationSources {
  std::map<std::string, std::string> flags;  // by "--flag": its text
  std::vector<std::string> environment;      // "NAME=value", all of it
  std::string file_text;                     // "" for no file
  std::string file_name;                     // for errors and comments
};

struct Setting {
  const Option* option = nullptr;
  std::string source;  // "default", "--port", "LOCI_PORT", "loci.toml:12", "OTEL_TRACES_SAMPLER"
};

struct Configuration {
  ServerConfig server;
  std::vector<Setting> settings;  // of every option, in the table's order
  // Variables named LOCI_... that are no option, and what is wrong with OpenTelemetry's.
  std::vector<std::string> warnings;
  std::vector<std::string> notes;  // OtelNews::notes
};

// Errors: kInvalidArgument whose field is the source: "--port", "LOCI_PORT", "loci.toml:12: network.port".
Result<Configuration> make_configuration(const ConfigurationSources& sources);

// As a TOML file with each value's source as a comment. Reading it gives the same configuration. Secrets
// are left out.
std::string print_configuration(const Configuration& configuration);

// docs/options.md.
std::string options_markdown();

// Reads the file of options into `sources`: `path`, or without one the user's own
// ($XDG_CONFIG_HOME/loci/loci.toml, else ~/.config/loci/loci.toml) if it is there; "" for none.
// Errors: those of read_text_file(), where `path` was given or the user's own can be opened.
Status read_options_file(const std::string* path, ConfigurationSources& sources);

}  // namespace loci
