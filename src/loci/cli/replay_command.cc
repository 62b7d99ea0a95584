// SPDX-License-Identifier: Apache-2.0
// `loci replay LOG`: shows that the core's decisions are a function of its events.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "loci/base/printable.h"
#include "loci/base/units.h"
#include "loci/cli/commands.h"
#include "loci/cli/help.h"
#include "loci/engine/log/event_log.h"

namespace loci {
namespace {

int run_replay(const std::string& path) {
  const Result<ReplayReport> report = replay(path);
  if (!report.ok()) {
    // (What is wrong with the whole file names it.)
    const Status status = report.status();
    const std::string& message = status.message();
    const std::string where = message.starts_with(path + ": ") ? "" : path + ": ";
    fmt::print(stderr, "loci replay: {}\n", printable(where + message, LineEnds::kKeep));
    return 1;
  }
  fmt::print("{} steps replayed, {} plans compared, all the same\n", format_count(report->steps),
             format_count(report->compared));
  if (report->truncated) fmt::print("the log ends inside a record, as a crash leaves it\n");
  return 0;
}

}  // namespace

void add_replay_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("replay", "run a server's event log again and compare its decisions");
  command->group(kMeasureGroup);
  auto path = std::make_shared<std::string>();
  command->add_option("LOG", *path, "what `loci serve --event-log` wrote")->required();
  command->footer("Examples:\n  loci serve default --event-log events.bin\n  loci replay events.bin");
  command->callback([path, &exit_code] { exit_code = run_replay(*path); });
}

}  // namespace loci
