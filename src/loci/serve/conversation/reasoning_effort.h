// SPDX-License-Identifier: Apache-2.0
// How long a client wants the model to reason, as each API names it. What the template sees of it is
// make_template_context()'s affair.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "loci/serve/wire/field_reader.h"

namespace loci {

inline constexpr std::array<std::string_view, 7> kOpenAiEfforts = {"none", "minimal", "low", "medium",
                                                                   "high", "xhigh",   "max"};
inline constexpr std::array<std::string_view, 5> kAnthropicEfforts = {"low", "medium", "high", "xhigh",
                                                                      "max"};

// One of `efforts` from the field `name`; absent, null and "" leave `out` empty.
void read_reasoning_effort(FieldReader& reader, std::string_view name,
                           std::span<const std::string_view> efforts, std::string& out);

}  // namespace loci
