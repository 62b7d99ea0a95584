// SPDX-License-Identifier: Apache-2.0
// Fields of OpenAI's, vLLM's and llama.cpp's APIs that would change the reply and that Loci does not serve.
// They are refused by name: a request whose wish is not met must not look as if it was.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loci/serve/wire/field_reader.h"

namespace loci {

// What becomes of a request that has one.
enum class UnservedRule : std::uint8_t {
  kRefuse,
  kIgnore,  // option lenient: the field is named in the log, once
};

// Refuses the first whose value asks for something, or returns the names of all that do. `served`: those of
// them that this API serves.
std::vector<std::string> refuse_unserved(FieldReader& reader, UnservedRule rule,
                                         std::span<const std::string_view> served = {});

std::span<const std::string_view> unserved_field_names();

}  // namespace loci
