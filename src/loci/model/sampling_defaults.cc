// SPDX-License-Identifier: Apache-2.0
#include "loci/model/sampling_defaults.h"

#include <fmt/format.h>

#include <limits>

namespace loci {
namespace {

// A number of `source`, where it is above `low` (or equal, unless `low_excluded`) and at most `high`.
void read_number(const ModelSource& source, const char* name, double low, double high, bool low_excluded,
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
  if (value >= low && value <= high && !(low_excluded && value == low)) {
    into = static_cast<float>(value);
  } else {
    ignored.push_back(fmt::format("{}: expected {} {} to {}, found {}; it is ignored", key,
                                  low_excluded ? "more than" : "from", low, high, value));
  }
}

}  // namespace

SamplingDefaults read_sampling_defaults(const ModelSource& source) {
  constexpr double kMost = 1000;
  SamplingDefaults out;
  read_number(source, "temp", 0, kMost, false, out.temperature, out.ignored);
  read_number(source, "top_p", 0, 1, true, out.top_p, out.ignored);
  read_number(source, "min_p", 0, 1, false, out.min_p, out.ignored);
  read_number(source, "penalty_repeat", 0, kMost, true, out.repetition_penalty, out.ignored);
  std::optional<float> top_k;
  read_number(source, "top_k", -1, 1 << 24, false, top_k, out.ignored);
  if (top_k) out.top_k = *top_k < 0 ? 0 : static_cast<std::uint32_t>(*top_k);
  return out;
}

}  // namespace loci
