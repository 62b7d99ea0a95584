// SPDX-License-Identifier: Apache-2.0
// The one binary: `loci COMMAND ...`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "loci/cli/commands.h"

namespace {

// "--port: value 70000 ...", without CLI11's line ends and the repeated list of options.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

int run(int argc, char** argv) {
  CLI::App app{"Loci: a language-model server that remembers.", "loci"};
  app.set_version_flag("--version", loci::kVersion);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n  loci serve default\n  loci chat\n  loci inspect model.gguf\n\nloci COMMAND --help tells "
      "more.");
  int exit_code = 0;
  loci::add_serve_command(app, exit_code);
  loci::add_chat_command(app, exit_code);
  loci::add_inspect_command(app, exit_code);
  loci::add_bench_command(app, exit_code);
  loci::add_bench_compute_command(app, exit_code);
  loci::add_keys_command(app, exit_code);
  loci::add_warm_command(app, exit_code);
  loci::add_replay_command(app, exit_code);
  loci::add_pull_commands(app, exit_code);
  loci::add_profile_command(app, exit_code);
  loci::add_options_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const auto chosen = app.get_subcommands();
    const std::string command = chosen.empty() ? "loci" : "loci " + chosen.front()->get_name();
    fmt::print(stderr, "{}: {} (see {} --help)\n", command, one_line(error.what()), command);
    return 2;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "loci: %s\n", error.what());
    return 1;
  }
}
