// SPDX-License-Identifier: Apache-2.0
// Patterns of paths: "/v1/responses/{id}/cancel". Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace loci {

// What stands in the path at the pattern's {names}, in order, percent-decoded; absent: it is no such path. A
// last segment "{name...}" takes the rest of the path, slashes too. No parameter is empty.
std::optional<std::vector<std::string>> parameters_of(std::string_view pattern, std::string_view path);

}  // namespace loci
