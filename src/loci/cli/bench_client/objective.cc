// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/objective.h"

#include <fmt/format.h>

#include <algorithm>

#include "loci/base/clock.h"
#include "loci/base/units.h"

namespace loci {
namespace {

Status malformed(std::string_view text) {
  return invalid_argument(
      fmt::format("expected one or more of ttft, tbt and latency, each once with a time above 0, as in "
                  "ttft=500ms,tbt=50ms, found '{}'",
                  text),
      "--objective");
}

}  // namespace

Result<Objective> parse_objective(std::string_view text) {
  Objective out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = part.find('=');
    if (equals == part.npos) return malformed(text);
    const std::string_view name = part.substr(0, equals);
    std::optional<double>* limit = name == "ttft"      ? &out.ttft_ms
                                   : name == "tbt"     ? &out.tbt_ms
                                   : name == "latency" ? &out.latency_ms
                                                       : nullptr;
    if (limit == nullptr || *limit) return malformed(text);
    const Result<std::int64_t> time = parse_duration(part.substr(equals + 1), "--objective");
    if (!time.ok() || *time <= 0) return malformed(text);
    *limit = static_cast<double>(*time) / kNanosPerMilli;
  }
  return out;
}

std::string describe(const Objective& objective) {
  std::string out;
  const auto add = [&](const char* name, const std::optional<double>& most) {
    if (most) out += fmt::format("{}{} of at most {:g} ms", out.empty() ? "" : " and ", name, *most);
  };
  add("TTFT", objective.ttft_ms);
  add("mean TBT", objective.tbt_ms);
  add("latency", objective.latency_ms);
  return out;
}

}  // namespace loci
