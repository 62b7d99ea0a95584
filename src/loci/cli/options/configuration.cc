// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/options/configuration.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "loci/cli/options/option_table.h"
#include "loci/cli/options/otel_environment.h"
#include "loci/cli/options/toml_file.h"
#include "loci/cli/paths.h"
#include "loci/serve/files/text_file.h"
#include "loci/server/baseline.h"

namespace loci {
namespace {

// Ours too, but no options of `loci serve`: other commands, scripts and tests read them.
bool is_other_variable(const std::string& name) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"LOCI_API_KEY", "LOCI_OPERATOR_KEY", "LOCI_CONFIG", "LOCI_DEFAULT_MODEL",
       // Of `loci route`.
       "LOCI_POLICY", "LOCI_HANDOVER", "LOCI_TLS_CA",
       // Of the build, tests and benchmarks.
       "LOCI_BINARY_DIR", "LOCI_CUDA_ARCHITECTURES", "LOCI_DATA", "LOCI_GEMMA3", "LOCI_SHARED_DATA",
       "LOCI_SOURCE_DIR", "LOCI_TEMPLATES", "LOCI_TOKENIZERS", "LOCI_VOCABULARIES"});
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() || name.starts_with("LOCI_WORLD_") ||
         name.starts_with("LOCI_FUZZ_") || name.starts_with("LOCI_SIMULATED_");
}

Status apply(const Option& option, const std::string& text, const std::string& source,
             const std::string& field, Configuration& out) {
  if (Status status = option.set(out.server, text); !status.ok()) {
    // A secret's text is not for logs either.
    return invalid_argument(
        option.secret ? "the value is not of the form that is expected" : status.message(), field);
  }
  const auto setting = std::find_if(out.settings.begin(), out.settings.end(),
                                    [&](const Setting& candidate) { return candidate.option == &option; });
  setting->source = source;
  return {};
}

// A variable whose flag was given is not looked at: Kubernetes sets LOCI_PORT=tcp://… for a Service with the
// name loci.
Status apply_environment(const ConfigurationSources& sources, Configuration& out) {
  std::vector<std::string> names;
  for (const Option& option : option_table()) names.push_back(option.environment());
  for (const std::string& entry : sources.environment) {
    const std::size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    if (equals == std::string::npos || !name.starts_with("LOCI_")) continue;
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) {
      const std::string text = entry.substr(equals + 1);
      const Option& option = option_table()[static_cast<std::size_t>(found - names.begin())];
      if (text.empty() || sources.flags.contains(option.flag)) continue;  // empty: as good as not set
      LOCI_RETURN_IF_ERROR(apply(option, text, name, name, out));
    } else if (!is_other_variable(name)) {
      const std::string near = nearest_name(name, names);
      out.warnings.push_back(fmt::format("{}: there is no option of that name{}", name,
                                         near.empty() ? "" : fmt::format("; is {} meant?", near)));
    }
  }
  return {};
}

std::string name_of(const Option& option) { return option.key().substr(option.group.size() + 1); }

// Gives the options that the baseline decides its values. Whatever else was given for one is refused.
Status apply_baseline(Configuration& out) {
  if (!out.server.baseline) return {};
  LOCI_ASSIGN_OR_RETURN(const ServerBaseline baseline, make_server_baseline(*out.server.baseline));
  const auto given = std::ranges::find(out.settings, "scheduling.baseline",
                                       [](const Setting& setting) { return setting.option->key(); });
  const std::string source = given->source;
  for (Setting& setting : out.settings) {
    const Option& option = *setting.option;
    if (std::ranges::find(baseline.options, name_of(option)) == baseline.options.end()) continue;
    const std::string text = option.get(baseline.config).value_or("");
    if (setting.source != "default" && option.get(out.server) != text) {
      const bool in_file = setting.source != option.flag && setting.source != option.environment();
      return invalid_argument(
          fmt::format("expected \"{}\", which {} has, found \"{}\"; leave out one of the two", text,
                      *out.server.baseline, option.get(out.server).value_or("")),
          setting.source + (in_file ? ": " + option.key() : ""));
    }
    LOCI_RETURN_IF_ERROR(option.set(out.server, text));
    if (setting.source == "default") setting.source = source;
  }
  return {};
}

// What Loci itself was not told of traces.
Status apply_otel(const ConfigurationSources& sources, Configuration& out) {
  const auto source_of = [&out](const char* key) -> std::string& {
    return std::ranges::find(out.settings, key, [](const Setting& one) { return one.option->key(); })->source;
  };
  std::string& url = source_of("logging.traces");
  std::string& share = source_of("logging.trace_share");
  const OtelTold told{.url = url != "default", .share = share != "default"};
  LOCI_ASSIGN_OR_RETURN(OtelNews news, apply_otel_environment(sources.environment, told, out.server.traces));
  if (!news.url_from.empty()) url = news.url_from;
  if (!news.share_from.empty()) share = news.share_from;
  std::ranges::move(news.warnings, std::back_inserter(out.warnings));
  out.notes = std::move(news.notes);
  return {};
}

std::string shown_default(const Option& option) {
  if (!option.default_note.empty()) return option.default_note;
  const std::string text = option.get(ServerConfig()).value_or("");
  return text.empty() ? "none" : "`" + text + "`";
}

std::string escaped_cell(std::string text) {
  for (std::size_t at = text.find('|'); at != text.npos; at = text.find('|', at + 2)) text.insert(at, "\\");
  return text;
}

}  // namespace

Result<Configuration> make_configuration(const ConfigurationSources& sources) {
  Configuration out;
  for (const Option& option : option_table())
    out.settings.push_back({.option = &option, .source = "default"});
  LOCI_ASSIGN_OR_RETURN(const std::vector<FileSetting> file,
                        parse_options_file(sources.file_text, sources.file_name));
  for (const FileSetting& setting : file) {
    const std::string source = fmt::format("{}:{}", sources.file_name, setting.line);
    LOCI_RETURN_IF_ERROR(
        apply(*setting.option, setting.text, source, source + ": " + setting.option->key(), out));
  }
  LOCI_RETURN_IF_ERROR(apply_environment(sources, out));
  for (const Option& option : option_table()) {
    const auto given = sources.flags.find(option.flag);
    if (given == sources.flags.end()) continue;
    if (option.guards && given->second.empty())
      return invalid_argument("expected a file, found an empty text; leave the flag out to serve without",
                              option.flag);
    LOCI_RETURN_IF_ERROR(apply(option, given->second, option.flag, option.flag, out));
  }
  LOCI_RETURN_IF_ERROR(apply_baseline(out));
  LOCI_RETURN_IF_ERROR(apply_otel(sources, out));
  return out;
}

std::string print_configuration(const Configuration& configuration) {
  std::string out =
      "# The effective configuration: flags, then the environment, then the file, then defaults.\n";
  std::string group;
  for (const Setting& setting : configuration.settings) {
    const Option& option = *setting.option;
    if (option.group != group) out += fmt::format("\n[{}]\n", option.group);
    group = option.group;
    const std::string name = name_of(option);
    const std::optional<std::string> text = option.get(configuration.server);
    if (!text) {
      out += fmt::format("# {}: {}\n", name, option.default_note.empty() ? "not set" : option.default_note);
    } else if (option.secret) {
      out += fmt::format("# {}: {}\n", name, text->empty() ? "not set" : "secret, from " + setting.source);
    } else {
      out += fmt::format("{} = {}  # {}\n", name, toml_value(option, *text), setting.source);
    }
  }
  return out;
}

std::string options_markdown() {
  std::string out =
      "# Options of `loci serve`\n\n"
      "<!-- Made by `loci options --markdown > docs/options.md`; options_test compares it. -->\n\n"
      "After this page you can set every option of the server, by flag, environment variable or file, and "
      "know which of "
      "them counts.\n\n"
      "A flag goes before the environment variable, the variable before the file, the file before the "
      "default.\n"
      "The file is TOML. `--config FILE` or `LOCI_CONFIG` names it; otherwise the server reads\n"
      "`$XDG_CONFIG_HOME/loci/loci.toml` or `~/.config/loci/loci.toml`, if it is there; `--config ''` reads "
      "none.\n"
      "`loci serve --print-config` prints what is in effect as such a file. The server refuses a key that is "
      "no option,\n"
      "and warns of a variable `LOCI_...` that is none. An empty variable counts as not set.\n"
      "Of traces OpenTelemetry's own variables decide what nothing else does "
      "([operations](operations.md#opentelemetrys-own-variables)).\n\n"
      "SIZE is `4GiB`, `512M` or a number of bytes. TIME is `250ms`, `30s`, `10m`, `2h`, `30d` or a number "
      "of seconds.\n"
      "A list has commas between its values; in the file it is an array.\n";
  for (const OptionGroup& group : option_groups()) {
    std::string rows;
    for (const Option& option : option_table()) {
      if (option.group != group.name) continue;
      std::string help = option.help;
      if (!option.choices.empty() && option.kind == OptionKind::kChoice) {
        help += ":";
        for (const std::string& choice : option.choices) {
          help += (&choice == &option.choices.front() ? " `" : ", `") + choice + "`";
        }
      }
      rows += fmt::format("| `{} {}` | `{}` | `{}` | {} | {} |\n", option.flag, escaped_cell(option.type),
                          option.environment(), option.key(), escaped_cell(shown_default(option)),
                          escaped_cell(help));
    }
    if (rows.empty()) continue;
    out += fmt::format(
        "\n## {}: {}\n\n| flag | environment | file | default | meaning |\n|---|---|---|---|---|\n{}",
        group.name, group.title, rows);
  }
  return out;
}

Status read_options_file(const std::string* path, ConfigurationSources& sources) {
  const std::string chosen = path != nullptr ? *path : user_config_path();
  if (chosen.empty()) return {};
  // The user's own file counts only where it can be opened.
  if (path == nullptr && ::access(chosen.c_str(), R_OK) != 0) return {};
  Result<std::string> text = read_text_file(chosen);
  if (!text.ok()) return Status(text.status().code(), text.status().message(), "--config");
  sources.file_text = *std::move(text);
  sources.file_name = chosen;
  return {};
}

}  // namespace loci
