// SPDX-License-Identifier: Apache-2.0
// All options of `loci serve`. A new one is a row in the file of its group (network_options.cc, ...), a
// place in ServerConfig, and docs/options.md made anew (`loci options --markdown > docs/options.md`).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "loci/cli/options/option.h"

namespace loci {

struct OptionGroup {
  std::string name;   // "network"
  std::string title;  // what it is about, for the documentation
};

// In the order in which they are shown.
const std::vector<OptionGroup>& option_groups();

// Group by group. Made once; immutable and thread-safe.
const std::vector<Option>& option_table();

// The option of that key; null: there is none.
const Option* find_option(std::string_view key);

// The one of `names` that is nearest to `name` (edit distance); empty where none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

// One for each group, in a file of its own.
std::vector<Option> network_options();
std::vector<Option> compute_options();
std::vector<Option> scheduling_options();
std::vector<Option> state_options();
std::vector<Option> store_options();
std::vector<Option> cluster_options();
std::vector<Option> tenants_options();
std::vector<Option> sampling_options();
std::vector<Option> logging_options();

}  // namespace loci
