// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/options_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "loci/cli/commands.h"
#include "loci/cli/help.h"
#include "loci/cli/options/option_table.h"

namespace loci {
namespace {

std::string shown_type(const Option& option) {
  if (option.kind == OptionKind::kSwitch || option.choices.empty()) return option.type;
  return fmt::format("{}", fmt::join(option.choices, "|"));
}

void add_flag(CLI::App& command, const Option& option, std::map<std::string, std::string>& given) {
  const bool positional = option.flag == "--model";
  const bool is_switch = option.kind == OptionKind::kSwitch;
  const auto take = [&given, is_switch, flag = option.flag](const std::vector<std::string>& texts) {
    // A switch without a value, last or before another flag, is on: the parser's text is empty then (or the
    // default, had it been told of one).
    const std::string text = fmt::format("{}", fmt::join(texts, ","));
    given[flag] = is_switch && text.empty() ? "on" : text;
  };
  CLI::Option* added = command.add_option_function<std::vector<std::string>>(
      (positional ? "MODEL," : "") + option.flag, take, option.help);
  // Several values of a list: the flag again.
  if (option.kind == OptionKind::kList) {
    added->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  } else {
    added->expected(is_switch ? 0 : 1, 1)->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  }
  added->allow_extra_args(false);  // the word behind a flag's value is the model
  const std::string text = option.get(ServerConfig()).value_or("");
  const std::string shown = option.default_note.empty() ? text : option.default_note;
  added->type_name(is_switch ? fmt::format("{}={}", option.type, shown) : shown_type(option))
      ->group(option.group);
  if (!shown.empty() && !is_switch) added->default_str(shown);
}

}  // namespace

std::vector<std::string> whole_environment() {
  std::vector<std::string> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) out.emplace_back(*entry);
  return out;
}

ServeArguments::ServeArguments(CLI::App& command) {
  command
      .add_option_function<std::string>(
          "--config",
          [this](const std::string& path) {
            config_ = path;
            config_given_ = true;
          },
          "a TOML file of these options; '' for none (LOCI_CONFIG)")
      ->type_name("FILE")
      ->default_str("~/.config/loci/loci.toml where it is there");
  command.add_flag("--print-config", print_config_,
                   "print the effective configuration as such a file, and end");
  for (const Option& option : option_table()) add_flag(command, option, given_);
}

Result<Configuration> ServeArguments::configuration() const {
  ConfigurationSources sources{
      .flags = given_, .environment = whole_environment(), .file_text = {}, .file_name = {}};
  const char* variable = std::getenv("LOCI_CONFIG");
  const bool from_environment = !config_given_ && variable != nullptr && *variable != '\0';
  const std::string path = from_environment ? variable : config_;
  LOCI_RETURN_IF_ERROR(read_options_file(config_given_ || from_environment ? &path : nullptr, sources));
  return make_configuration(sources);
}

void add_options_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("options", "list the options of `loci serve`: flag, variable, file");
  command->group(kTalkGroup);
  auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "as docs/options.md has it");
  command->footer("Examples:\n  loci options\n  loci serve default --print-config > loci.toml");
  command->callback([markdown, &exit_code] {
    if (*markdown) {
      fmt::print("{}", options_markdown());
    } else {
      for (const Option& option : option_table()) {
        fmt::print("{:<20} {:<24} {:<28} {}\n", option.flag, option.environment(), option.key(), option.help);
      }
    }
    exit_code = 0;
  });
}

}  // namespace loci
