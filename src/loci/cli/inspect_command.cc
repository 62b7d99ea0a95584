// SPDX-License-Identifier: Apache-2.0
// `loci inspect MODEL|STORE|STATE`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "loci/cli/commands.h"
#include "loci/cli/help.h"
#include "loci/cli/inspect.h"
#include "loci/cli/inspect_state.h"
#include "loci/cli/inspect_store.h"
#include "loci/cli/paths.h"
#include "loci/cli/status_text.h"

namespace loci {
namespace {

struct InspectFlags {
  std::string path;
  bool tensors = false;
  std::string conversation;
};

Result<std::string> make_report(const InspectFlags& flags) {
  if (!flags.conversation.empty()) return inspect_conversation(flags.path, flags.conversation);
  if (is_store_file(flags.path)) return inspect_store(flags.path);
  if (is_state_directory(flags.path)) return inspect_state(flags.path);
  LOCI_ASSIGN_OR_RETURN(const std::string path, resolve_model(flags.path));
  return inspect_model(path, flags.tensors ? InspectDetail::kEveryTensor : InspectDetail::kSummary);
}

int run_inspect(const InspectFlags& flags) {
  const Result<std::string> report = make_report(flags);
  if (!report.ok()) {
    fmt::print(stderr, "loci inspect: {}\n", for_people(report.status()));
    return 1;
  }
  fmt::print("{}", report.value());
  return 0;
}

}  // namespace

void add_inspect_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("inspect", "tell what is in a model, a store or a directory of state");
  command->group(kModelsGroup);
  auto flags = std::make_shared<InspectFlags>();
  command
      ->add_option(
          "PATH", flags->path,
          "a GGUF file, a Hugging Face directory, `default`, a conversation store's file, or a directory "
          "that was given to --disk")
      ->required();
  command->add_flag("--tensors", flags->tensors, "list every tensor");
  command
      ->add_option("--conversation", flags->conversation, "print the items of this conversation or response")
      ->type_name("ID");
  command->footer(
      "Examples:\n  loci inspect default\n  loci inspect model.gguf --tensors\n  loci inspect "
      "SmolLM2-135M-Instruct/\n  loci inspect ~/.local/state/loci/conversations.db --conversation conv_...\n "
      " loci inspect ~/.local/state/loci/state");
  command->callback([flags, &exit_code] { exit_code = run_inspect(*flags); });
}

}  // namespace loci
