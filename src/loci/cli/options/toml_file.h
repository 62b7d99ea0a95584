// SPDX-License-Identifier: Apache-2.0
// The TOML file of options: groups are tables, options their keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/cli/options/option.h"

namespace loci {

struct FileSetting {
  const Option* option = nullptr;
  std::string text;  // as Option::set() takes it
  std::uint32_t line = 0;
};

// Reads the text of a file, whose `name` is for errors ("loci.toml:12").
// Errors: kInvalidArgument whose field is the place; for a key that is no option the message names the
// nearest one that is.
Result<std::vector<FileSetting>> parse_options_file(std::string_view text, const std::string& name);

// The value of a setting as TOML.
std::string toml_value(const Option& option, const std::string& text);

}  // namespace loci
