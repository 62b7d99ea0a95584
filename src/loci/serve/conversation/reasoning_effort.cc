// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/reasoning_effort.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "loci/serve/wire/json.h"

namespace loci {

void read_reasoning_effort(FieldReader& reader, std::string_view name,
                           std::span<const std::string_view> efforts, std::string& out) {
  reader.text(name, out);
  if (!reader.ok() || out.empty() || std::ranges::find(efforts, out) != efforts.end()) return;
  const auto last = efforts.last(1).front();
  reader.expected(name, fmt::format("{} or {}", fmt::join(efforts.first(efforts.size() - 1), ", "), last),
                  Json(out));
}

}  // namespace loci
