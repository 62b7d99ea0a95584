// SPDX-License-Identifier: Apache-2.0
// The texts of parts/*.json, which the build embeds.
#pragma once

#include <string_view>
#include <vector>

namespace loci {

const std::vector<std::string_view>& openapi_parts();

}  // namespace loci
