// SPDX-License-Identifier: Apache-2.0
#include "loci/model/sampling_defaults.h"

#include <fmt/format.h>

#include "loci/model/sampling_range.h"

namespace loci {
namespace {

// A number of `source`, if it is in `range` as the float that it becomes.
void read_number(const ModelSource& source, const char* name, const NumberRange& range,
                 std::optional<float>& into, std::vector<std::string>& ignored) {
  const std::string key = std::string("general.sampling.") + name;
  if (!source.has(key)) return;
  double value = 0;
  if (const Result<double> number = source.get_float(key); number.ok()) {
    value = *number;
  } else if (const Result<std::uint64_t> integer = source.get_uint(key); integer.ok()) {
    value = static_cast<double>(*integer);
  } else {
    ignored.push_back(fmt::format("{}: expected a number; it is ignored", key));
    return;
  }
  if (range.contains(static_cast<float>(value))) {
    into = static_cast<float>(value);
  } else {
    ignored.push_back(fmt::format("{}: expected {} {} to {}, found {}; it is ignored", key,
                                  range.low_excluded ? "more than" : "from", double{range.low},
                                  double{range.high}, value));
  }
}

}  // namespace

SamplingDefaults read_sampling_defaults(const ModelSource& source) {
  SamplingDefaults out;
  read_number(source, "temp", kTemperatureRange, out.temperature, out.ignored);
  read_number(source, "top_p", kTopPRange, out.top_p, out.ignored);
  read_number(source, "min_p", kMinPRange, out.min_p, out.ignored);
  read_number(source, "penalty_repeat", kRepetitionPenaltyRange, out.repetition_penalty, out.ignored);
  std::optional<float> top_k;
  read_number(source, "top_k", {.low = -1, .high = 1 << 24}, top_k, out.ignored);
  if (top_k) out.top_k = *top_k < 0 ? 0 : static_cast<std::uint32_t>(*top_k);
  return out;
}

}  // namespace loci
