// SPDX-License-Identifier: Apache-2.0
// Where files of the user are (XDG base directories).
#pragma once

#include <string>

#include "loci/base/status.h"

namespace loci {

// $XDG_STATE_HOME or ~/.local/state, with /loci/history
std::string chat_history_path();
// The same, with /loci/conversations.db
std::string default_store_path();
// The same, with /loci/state: a directory
std::string default_state_path();
// The same, with /loci/profiles: a directory
std::string default_profile_folder();
// $XDG_CONFIG_HOME or ~/.config, with /loci/loci.toml
std::string user_config_path();

// $XDG_CONFIG_HOME or ~/.config, with /loci/keys.toml
std::string default_keys_path();

// $XDG_CACHE_HOME or ~/.cache, with /loci
std::string user_cache_path();

// The file or directory behind a command's MODEL: `default`, a path, or a repo that was pulled
// (pull/resolve_model.h).
// Errors: kNotFound, saying what to do.
Result<std::string> resolve_model(const std::string& model);

}  // namespace loci
