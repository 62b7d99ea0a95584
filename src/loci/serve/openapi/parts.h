// SPDX-License-Identifier: Apache-2.0
// The texts of parts/*.json, which the build embeds.
#pragma once

#include <string_view>
#include <vector>

namespace loci {

struct OpenApiPart {
  std::string_view name;  // "chat.json"
  std::string_view text;
};
const std::vector<OpenApiPart>& openapi_parts();

}  // namespace loci
