// `loci inspect MODEL`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "loci/cli/commands.h"
#include "loci/cli/inspect.h"
#include "loci/cli/paths.h"

namespace loci {
namespace {

int run_inspect(const std::string& model, InspectDetail detail) {
  const Result<std::string> path = resolve_model(model);
  const Result<std::string> report = path.ok() ? inspect_model(path.value(), detail) : path;
  if (!report.ok()) {
    fmt::print(stderr, "loci inspect: {}\n", report.status().to_string());
    return 1;
  }
  fmt::print("{}", report.value());
  return 0;
}

}  // namespace

void add_inspect_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("inspect", "tell what is in a model's file or directory");
  struct Flags {
    std::string model;
    bool tensors = false;
  };
  auto flags = std::make_shared<Flags>();
  command->add_option("MODEL", flags->model, "a GGUF file, a Hugging Face directory, or `default`")
      ->required();
  command->add_flag("--tensors", flags->tensors, "list every tensor");
  command->footer(
      "Examples:\n  loci inspect default\n  loci inspect model.gguf --tensors\n  loci inspect "
      "SmolLM2-135M-Instruct/");
  command->callback([flags, &exit_code] {
    exit_code =
        run_inspect(flags->model, flags->tensors ? InspectDetail::kEveryTensor : InspectDetail::kSummary);
  });
}

}  // namespace loci
