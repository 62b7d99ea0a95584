// SPDX-License-Identifier: Apache-2.0
// `loci serve MODEL`. The network answers (503) before the model is loaded; a first SIGINT, SIGTERM or SIGHUP
// drains, a second one stops at once.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "loci/cli/commands.h"
#include "loci/cli/help.h"
#include "loci/cli/options_command.h"
#include "loci/cli/paths.h"
#include "loci/cli/pull/resolve_model.h"
#include "loci/cli/serve_report.h"
#include "loci/cli/status_text.h"
#include "loci/server/process.h"
#include "loci/server/run_server.h"

namespace loci {
namespace {

// With what one option says of another, and with the user's own places where none is named.
ServerConfig completed(ServerConfig config) {
  if (!config.store) config.store = config.join.empty() ? default_store_path() : config.join;
  config.folders = {.state = default_state_path(), .profiles = default_profile_folder()};
  KeySources environment = keys_of_environment();
  config.keys.keys = std::move(environment.keys);
  config.keys.operator_keys = std::move(environment.operator_keys);
  return config;
}

int report_failure(const ServerConfig& config, spdlog::logger& log, const Status& status) {
  if (config.log_format == LogFormat::kJson) {
    loci::log(log, spdlog::level::critical,
              LogLine("the server cannot start")
                  .text("field", flag_of(status.field()))
                  .text("reason", status.message()));
  } else {
    fmt::print(stderr, "loci serve: {}\n", for_people(status));
  }
  return 1;
}

int run_serve(const Configuration& configuration) {
  const ServerConfig config = completed(configuration.server);
  raise_descriptor_limit();
  block_operator_signals();
  const std::shared_ptr<spdlog::logger> log = make_logger(config.log_format, config.log_level);
  spdlog::set_default_logger(log);  // for code that was given no logger
  for (const std::string& warning : configuration.warnings) log->warn(warning);
  for (const std::string& note : configuration.notes) log->info(note);
  const OperatorSignals signals(*log);
  const auto find_model = [&config](const std::function<void(const std::string&)>& say) {
    return resolve_model(config.model, config.pull ? WhenMissing::kPull : WhenMissing::kFail, say);
  };
  const auto ready = [&config](const ServerReport& report) { print_report(report, config.log_format); };
  const Result<ServerEnd> end = run_server(config, find_model, log, signals, ready);
  if (!end.ok()) return report_failure(config, *log, end.status());
  return *end == ServerEnd::kCutOff ? 1 : 0;
}

int configure_and_serve(const ServeArguments& arguments) {
  const auto refuse = [](const Status& status) {
    fmt::print(stderr, "loci serve: {} (see loci serve --help)\n", for_people(status));
    return 2;
  };
  const Result<Configuration> configuration = arguments.configuration();
  if (!configuration.ok()) return refuse(configuration.status());
  if (arguments.print_config()) {
    fmt::print("{}", print_configuration(*configuration));
    return 0;
  }
  if (configuration->server.model.empty())
    return refuse(invalid_argument("expected a model's file or directory, or `default`", "MODEL"));
  return run_serve(*configuration);
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("serve", "serve a model over HTTP (the APIs of OpenAI and Anthropic)");
  auto arguments = std::make_shared<ServeArguments>(*command);
  command->group(kTalkGroup);
  command->set_help_all_flag("--help-all", "show all options");
  command->formatter_fn([](const CLI::App*, const std::string&, CLI::AppFormatMode mode) {
    return serve_help(mode == CLI::AppFormatMode::All ? HelpDepth::kAll : HelpDepth::kOften);
  });
  command->callback([arguments, &exit_code] {
    exit_code = configure_and_serve(*arguments);
    end_log(exit_code);
  });
}

}  // namespace loci
