// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>

#include "loci/base/check.h"
#include "loci/cli/options/option_table.h"
#include "loci/server/server_config.h"

namespace loci {
namespace {

constexpr std::size_t kColumns = 80;

// What most people set sooner or later, in the order in which they do.
constexpr std::array<std::string_view, 10> kOften = {
    "--host",        "--port", "--api-keys",    "--device",  "--device-memory",
    "--host-memory", "--disk", "--max-running", "--context", "--store"};

// `name` in the first column, `text` in the second one, in as many lines as it takes.
std::string row(std::string_view name, std::string_view text, std::size_t column) {
  std::string line = fmt::format("  {:<{}}", name, column - 2);
  if (name.size() + 2 >= column) line += "\n" + std::string(column, ' ');
  std::string out;
  std::size_t used = column;
  bool first = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (!first && used + 1 + word.size() > kColumns) {
      out += line + "\n";
      line = std::string(column, ' ');
      used = column;
      first = true;
    }
    if (!first) line += ' ', ++used;
    line += word;
    used += word.size();
    first = false;
    at = end + 1;
  }
  return out + line + "\n";
}

std::string option_row(const Option& option) {
  constexpr std::size_t kColumn = 26;
  const std::string type =
      option.kind == OptionKind::kChoice ? fmt::format("{}", fmt::join(option.choices, "|")) : option.type;
  std::string text = option.help;
  const std::string value = option.get(ServerConfig()).value_or("");
  const std::string shown = option.default_note.empty() ? value : option.default_note;
  if (!shown.empty()) text += fmt::format(" (default: {})", shown);
  const bool is_long = option.flag.size() + 1 + type.size() + 4 > kColumn;
  if (option.kind == OptionKind::kChoice && is_long)
    return row(option.flag, fmt::format("{}: {}", fmt::join(option.choices, ", "), text), kColumn);
  return row(option.flag + " " + type, text, kColumn);
}

const Option& option_of(std::string_view flag) {
  const std::vector<Option>& table = option_table();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Option& o) { return o.flag == flag; });
  LOCI_CHECK(found != table.end(), "the help names an option that there is not");
  return *found;
}

constexpr const char* kServeHead =
    "Serve a model over HTTP: the APIs of OpenAI and of Anthropic.\n\n"
    "Usage: loci serve MODEL [OPTIONS]\n\n"
    "MODEL is a GGUF file, a Hugging Face directory, OWNER/NAME[@REVISION][:FILE] of\n"
    "a registry (fetched when it is not here), or `default`, a small one to try it.\n";

constexpr const char* kServeExamples =
    "\nExamples:\n"
    "  try it out                loci serve default\n"
    "  a model of a registry     loci serve OWNER/NAME-GGUF:Q4_K_M\n"
    "  let others use it         loci keys add alice\n"
    "                            loci serve MODEL --host 0.0.0.0 \\\n"
    "                                --api-keys ~/.config/loci/keys.toml\n"
    "  remember more             loci serve MODEL --disk /data/loci:200GiB\n"
    "  keep the settings         loci serve MODEL --port 9000 --print-config >my.toml\n"
    "                            loci serve --config my.toml\n";

}  // namespace

std::string loci_help(const CLI::App& app) {
  std::string out = "Loci: a language-model server that remembers.\n\nUsage: loci COMMAND ...\n";
  for (const char* group : {kTalkGroup, kModelsGroup, kManyGroup, kMeasureGroup}) {
    out += fmt::format("\n{}:\n", group);
    for (const CLI::App* one :
         app.get_subcommands([&](const CLI::App* command) { return command->get_group() == group; }))
      out += row(one->get_name(), one->get_description(), 17);
  }
  return out +
         "\nExamples:\n"
         "  loci serve default                  serve a small model\n"
         "  loci chat                           talk to it, in another terminal\n"
         "  loci serve OWNER/NAME-GGUF:Q4_K_M   fetch a model and serve it\n"
         "  loci list                           which models are here\n"
         "  loci inspect default                what is in a model's file\n"
         "\nloci COMMAND --help tells more.\n";
}

std::string serve_help(HelpDepth depth) {
  std::string out = kServeHead;
  const std::string config =
      row("--config FILE",
          "read options from a TOML file (default: ~/.config/loci/loci.toml, if it is there)", 26) +
      row("--print-config", "print what is in effect as such a file, and end", 26);
  if (depth == HelpDepth::kOften) {
    out += "\nWhat people set:\n";
    for (const std::string_view flag : kOften) out += option_row(option_of(flag));
    out += config + row("--help-all", "show all options", 26);
  } else {
    for (const OptionGroup& group : option_groups()) {
      out += fmt::format("\n{}: {}\n", group.name, group.title);
      for (const Option& option : option_table()) {
        if (option.group == group.name) out += option_row(option);
      }
    }
    out += "\nconfiguration: where options come from\n" + config;
  }
  return out +
         "\nAn option --some-name is also LOCI_SOME_NAME in the environment, and some_name\n"
         "of its group in the file (`loci options` lists all three).\n" +
         kServeExamples;
}

}  // namespace loci
