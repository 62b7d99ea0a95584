// SPDX-License-Identifier: Apache-2.0
// Translates published names of tensors to GGUF's by a family's table (families/hugging_face.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "loci/model/families/hugging_face.h"

namespace loci {

struct MatchedName {
  const PublishedTensor* entry = nullptr;
  std::string name;                     // GGUF's, with the layer's number filled in; empty: not used
  std::string second;                   // the second name, if it becomes two tensors
  std::optional<std::uint32_t> expert;  // the number that stood for "{e}"
};

// The first entry of `table` whose pattern matches `published`; numbers have no leading zeros.
std::optional<MatchedName> match_name(std::string_view published, std::span<const PublishedTensor> table);

}  // namespace loci
