// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/paths.h"

#include <cstdlib>

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

std::string default_state_path() { return base_folder("XDG_STATE_HOME", ".local/state") + "/loci/state"; }
std::string default_profile_folder() {
  return base_folder("XDG_STATE_HOME", ".local/state") + "/loci/profiles";
}

std::string user_config_path() { return base_folder("XDG_CONFIG_HOME", ".config") + "/loci/loci.toml"; }
std::string default_keys_path() { return base_folder("XDG_CONFIG_HOME", ".config") + "/loci/keys.toml"; }

std::string user_cache_path() { return base_folder("XDG_CACHE_HOME", ".cache") + "/loci"; }

}  // namespace loci
