// SPDX-License-Identifier: Apache-2.0
// `loci pull`, `loci list` and `loci rm`: models from a registry, and what is here.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/printable.h"
#include "loci/base/units.h"
#include "loci/cli/commands.h"
#include "loci/cli/help.h"
#include "loci/cli/option_checks.h"
#include "loci/cli/pull/hub.h"
#include "loci/cli/pull/model_folder.h"
#include "loci/cli/pull/puller.h"
#include "loci/model/default_model.h"

namespace loci {
namespace {

int report(const char* command, const Status& status) {
  fmt::print(stderr, "loci {}: {}\n", command, printable(status.message(), LineEnds::kKeep));
  return 1;
}

RepoReference repo_named(const std::string& text) {
  const Result<RepoReference> repo = parse_repo_reference(text);
  refuse_unless_ok(repo.status());
  return *repo;
}

Nanos stall_timeout_of(const std::string& text) {
  const Result<Nanos> stall = parse_duration(text, "--stall-timeout");
  refuse_unless_ok(stall.status());
  if (*stall <= 0) refuse_unless_ok(invalid_argument("expected a time above 0, found 0", "--stall-timeout"));
  return *stall;
}

int run_pull(const RepoReference& repo, unsigned connections, Nanos stall_timeout) {
  PullOptions options{.models = models_folder(),
                      .access = hub_access_of_environment(),
                      .connections = connections,
                      .say = {}};
  options.access.stall_timeout = stall_timeout;
  const Result<std::string> path = pull(repo, options);
  if (!path.ok()) return report("pull", path.status());
  fmt::print("{}\n", *path);
  return 0;
}

struct Row {
  std::string name;
  std::uint64_t bytes = 0;
  std::string where;
};

// One row for each model: a GGUF model of several parts is one, a directory of safetensors is one.
void add_rows(const PulledRepo& pulled, std::vector<Row>& rows) {
  std::vector<RepoFile> rest = pulled.files;
  while (!rest.empty()) {
    const RepoFile first = rest.front();
    RepoReference name = pulled.repo;
    std::vector<RepoFile> files = {first};
    std::string where = pulled.folder;
    if (first.path.ends_with(".gguf")) {
      name.file = first.path;
      where += "/" + first.path;
      if (Result<ChosenFiles> chosen = choose_files(pulled.files, first.path); chosen.ok())
        files = chosen->files;
    } else {
      files.clear();
      std::copy_if(rest.begin(), rest.end(), std::back_inserter(files),
                   [](const RepoFile& file) { return !file.path.ends_with(".gguf"); });
    }
    Row row{.name = name.text(), .bytes = 0, .where = std::move(where)};
    for (const RepoFile& file : files) {
      row.bytes += file.size;
      std::erase_if(rest, [&](const RepoFile& other) { return other.path == file.path; });
    }
    rows.push_back(std::move(row));
  }
}

int run_list() {
  namespace fs = std::filesystem;
  std::vector<Row> rows;
  std::error_code error;
  if (const std::uintmax_t size = fs::file_size(default_model_path(), error); !error) {
    rows.push_back({.name = "default", .bytes = size, .where = default_model_path()});
  }
  for (const PulledRepo& pulled : list_pulled(models_folder())) add_rows(pulled, rows);
  if (rows.empty()) {
    fmt::print("no models are here: `loci pull OWNER/NAME[:FILE]` fetches one\n");
    return 0;
  }
  std::size_t width = 5;
  for (const Row& row : rows) width = std::max(width, row.name.size());
  fmt::print("{:<{}}  {:>10}  {}\n", "MODEL", width, "SIZE", "WHERE");
  for (const Row& row : rows)
    fmt::print("{:<{}}  {:>10}  {}\n", row.name, width, format_bytes(row.bytes), row.where);
  return 0;
}

int run_remove(const RepoReference& repo) {
  const Result<std::uint64_t> bytes = remove_pulled(models_folder(), repo);
  if (!bytes.ok()) return report("rm", bytes.status());
  fmt::print("{} removed, {} freed\n", repo.text(), format_bytes(*bytes));
  return 0;
}

}  // namespace

void add_pull_commands(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string model;
    unsigned connections = 4;
    std::string stall_timeout = "30s";
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* pull_command =
      app.add_subcommand("pull", "fetch a model from a registry of Hugging Face's layout");
  pull_command->group(kModelsGroup);
  pull_command->add_option("MODEL", flags->model, "OWNER/NAME[@REVISION][:FILE or quantisation]")->required();
  pull_command
      ->add_option("--connections", flags->connections, "the number of files that are fetched at once")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  pull_command
      ->add_option("--stall-timeout", flags->stall_timeout,
                   "how long a connection may bring no bytes before it is given up")
      ->type_name("TIME")
      ->capture_default_str();
  pull_command->footer(
      "HF_ENDPOINT names the registry. HF_TOKEN is the token for models that are not public. A pull that "
      "was\ninterrupted goes on where it stopped. At its end the path of the model is printed.\nExamples:\n  "
      "loci pull OWNER/NAME-GGUF:Q4_K_M\n  loci pull OWNER/NAME@v1.0\n  loci serve OWNER/NAME");
  pull_command->callback([flags, &exit_code] {
    const RepoReference repo = repo_named(flags->model);
    exit_code = run_pull(repo, flags->connections, stall_timeout_of(flags->stall_timeout));
  });

  CLI::App* list = app.add_subcommand("list", "list the models that are here");
  list->group(kModelsGroup);
  list->footer("Examples:\n  loci list");
  list->callback([&exit_code] { exit_code = run_list(); });

  auto removed = std::make_shared<std::string>();
  CLI::App* remove = app.add_subcommand("rm", "remove a model that was pulled");
  remove->group(kModelsGroup);
  remove
      ->add_option("MODEL", *removed, "OWNER/NAME[@REVISION][:FILE or quantisation], as `loci list` shows it")
      ->required();
  remove->footer("Examples:\n  loci rm OWNER/NAME-GGUF:Q4_K_M\n  loci rm OWNER/NAME");
  remove->callback([removed, &exit_code] { exit_code = run_remove(repo_named(*removed)); });
}

}  // namespace loci
