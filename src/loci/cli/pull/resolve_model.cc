// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/pull/resolve_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "loci/cli/paths.h"
#include "loci/cli/pull/hub.h"
#include "loci/cli/pull/model_folder.h"
#include "loci/cli/pull/puller.h"
#include "loci/model/default_model.h"

namespace loci {
namespace {

constexpr const char* kChoices =
    "give a GGUF file, a Hugging Face directory, OWNER/NAME[:FILE] of a registry, or `default`";

Result<std::string> resolve_repo(const RepoReference& repo, WhenMissing when_missing, PullProgress::Say say) {
  if (const std::optional<std::string> here = find_pulled(models_folder(), repo)) return *here;
  if (when_missing == WhenMissing::kFail) {
    return not_found(
        fmt::format("{} is neither a file nor pulled: `loci pull {}` fetches it", repo.text(), repo.text()));
  }
  return pull(repo,
              {.models = models_folder(), .access = hub_access_of_environment(), .say = std::move(say)});
}

}  // namespace

Result<std::string> resolve_model(const std::string& model, WhenMissing when_missing, PullProgress::Say say) {
  const bool is_default = model == "default";
  const std::string path = is_default ? default_model_path() : model;
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return path;
  if (is_default) {
    return not_found(fmt::format(
        "there is no default model at {}: `loci pull OWNER/NAME-GGUF:Q4_K_M` fetches a model of a "
        "registry, `loci serve OWNER/NAME-GGUF:Q4_K_M` serves it",
        path));
  }
  if (std::filesystem::is_directory(path, error)) {
    if (std::filesystem::exists(path + "/config.json", error)) return path;
    return not_found(fmt::format("{} is a folder without config.json; {}", path, kChoices));
  }
  // "models/x.gguf" is rather a path that is wrong than a repo.
  if (const Result<RepoReference> repo = parse_repo_reference(model);
      repo.ok() && (!repo->repo.ends_with(".gguf") || !repo->file.empty())) {
    return resolve_repo(*repo, when_missing, std::move(say));
  }
  return not_found(fmt::format("there is no file {}; {}", path, kChoices));
}

Result<std::string> resolve_model(const std::string& model) {
  return resolve_model(model, WhenMissing::kFail, {});
}

}  // namespace loci
