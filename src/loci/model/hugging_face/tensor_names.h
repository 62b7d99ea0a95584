// SPDX-License-Identifier: Apache-2.0
// Published names of tensors and GGUF's: matching a family's table (families/hugging_face.h).
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
  std::string second;                   // the other one, where it makes two
  std::optional<std::uint32_t> expert;  // the number that stood for "{e}"
};

// The first entry of `table` whose pattern `published` spells; numbers have no leading zeros.
std::optional<MatchedName> match_name(std::string_view published, std::span<const PublishedTensor> table);

}  // namespace loci
