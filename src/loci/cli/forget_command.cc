// SPDX-License-Identifier: Apache-2.0
// `loci forget MODEL|--all`: frees the disk space that computed state takes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/units.h"
#include "loci/cli/commands.h"
#include "loci/cli/help.h"
#include "loci/cli/option_checks.h"
#include "loci/cli/options/disk_flag.h"
#include "loci/cli/paths.h"
#include "loci/memory/disk/disk_models.h"

namespace loci {
namespace {

struct ForgetFlags {
  std::string model;
  bool all = false;
  std::vector<std::string> disks;
};

int refuse(const std::string& what) {
  fmt::print(stderr, "loci forget: {}\n", what);
  return 1;
}

std::string name_of(const StoredModel& model) {
  return model.name.name.empty() ? model.id : fmt::format("{} ({})", model.name.name, model.id.substr(0, 8));
}

// `default` and names of a registry are paths too.
std::vector<StoredModel> find(const std::string& directory, const ForgetFlags& flags) {
  if (flags.all) return list_stored_models(directory);
  std::vector<StoredModel> models = find_stored_models(directory, flags.model);
  if (!models.empty()) return models;
  const Result<std::string> path = resolve_model(flags.model);
  return path.ok() ? find_stored_models(directory, *path) : models;
}

// How many there were; `exit_code` is set where one could not be forgotten.
std::size_t forget_in(const std::string& directory, const ForgetFlags& flags, int& exit_code) {
  const std::vector<StoredModel> models = find(directory, flags);
  for (const StoredModel& model : models) {
    const Status status = forget_stored_model(
        model, [](const std::string& line) { fmt::print(stderr, "loci forget: {}\n", line); });
    if (status.ok()) {
      fmt::print("{}: forgot {}, {}\n", directory, name_of(model), format_bytes(model.held_bytes));
    } else if (model.user != 0) {
      exit_code = refuse(fmt::format("{}: {} is being served (process {}); stop that server first", directory,
                                     name_of(model), model.user));
    } else {
      exit_code = refuse(status.message());
    }
  }
  return models.size();
}

Result<std::vector<DiskPlace>> directories_of(const ForgetFlags& flags) {
  if (flags.all == !flags.model.empty())
    return invalid_argument("expected a model's name or --all (see `loci inspect`)");
  Result<std::vector<DiskPlace>> directories = parse_disk_flags(flags.disks);
  if (!directories.ok()) return invalid_argument(directories.status().message(), "--disk");
  if (directories->empty()) directories->push_back({.path = default_state_path()});
  return directories;
}

int run_forget(const ForgetFlags& flags, const std::vector<DiskPlace>& directories) {
  std::size_t found = 0;
  int exit_code = 0;
  for (const DiskPlace& directory : directories) {
    std::error_code error;
    // A name that was misspelt; the default one is made by the first server that keeps state.
    if (!flags.disks.empty() && !std::filesystem::is_directory(directory.path, error)) {
      exit_code = refuse(fmt::format("--disk: there is no directory {}", directory.path));
      continue;
    }
    const std::size_t forgotten = forget_in(directory.path, flags, exit_code);
    if (forgotten == 0 && flags.all) fmt::print("{}: no state of any model\n", directory.path);
    found += forgotten;
  }
  if (found > 0 || flags.all || exit_code != 0) return exit_code;
  return refuse(fmt::format("{}: no state of a model {} (`loci inspect {}` lists what there is)",
                            directories.front().path, flags.model, directories.front().path));
}

}  // namespace

void add_forget_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("forget", "free the disk space that a model's computed state takes");
  command->group(kModelsGroup);
  auto flags = std::make_shared<ForgetFlags>();
  command->add_option(
      "MODEL", flags->model,
      "a model's name, path, or the first digits of its folder, as `loci inspect` lists them");
  command->add_flag("--all", flags->all, "forget the state of all models");
  command
      ->add_option("--disk", flags->disks,
                   "a directory that was given to `loci serve --disk` (default: the user's state folder)")
      ->type_name("DIR");
  command->footer(
      "Conversations stay: their state is computed again when they go on.\nExamples:\n  loci forget "
      "default\n  "
      "loci forget --all --disk /mnt/nvme");
  command->callback([flags, &exit_code] {
    const Result<std::vector<DiskPlace>> directories = directories_of(*flags);
    refuse_unless_ok(directories.status());
    exit_code = run_forget(*flags, *directories);
  });
}

}  // namespace loci
