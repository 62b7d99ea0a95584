#include "loci/cli/paths.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "loci/model/default_model.h"

namespace loci {
namespace {

std::string base_folder(const char* variable, const char* below_home) {
  if (const char* folder = std::getenv(variable); folder != nullptr && folder[0] == '/') return folder;
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : ".") + "/" + below_home;
}

}  // namespace

std::string chat_history_path() { return base_folder("XDG_STATE_HOME", ".local/state") + "/loci/history"; }

std::string default_store_path() {
  return base_folder("XDG_STATE_HOME", ".local/state") + "/loci/conversations.db";
}

std::string user_config_path() { return base_folder("XDG_CONFIG_HOME", ".config") + "/loci/loci.toml"; }
std::string default_keys_path() { return base_folder("XDG_CONFIG_HOME", ".config") + "/loci/keys.toml"; }

Result<std::string> resolve_model(const std::string& model) {
  const bool is_default = model == "default";
  const std::string path = is_default ? default_model_path() : model;
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return path;
  if (is_default)
    return not_found(fmt::format("the default model is not at {}: fetch it with `make model`", path));
  constexpr const char* kChoices = "give a GGUF file, a Hugging Face directory or `default`";
  if (std::filesystem::is_directory(path, error)) {
    if (std::filesystem::exists(path + "/config.json", error)) return path;
    return not_found(fmt::format("{} is a folder without config.json; {}", path, kChoices));
  }
  return not_found(fmt::format("there is no file {}; {}", path, kChoices));
}

}  // namespace loci
