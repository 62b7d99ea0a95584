// SPDX-License-Identifier: Apache-2.0
#include "loci/model/families/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

namespace loci {
namespace {

constexpr double kMaxFactor = 1e6;
constexpr double kMaxMagnitude = 1e3;

// The shape of a rotation before it is scaled.
struct Base {
  std::uint32_t dimensions;
  double base;

  double frequency(std::uint32_t pair) const { return std::pow(base, -2.0 * pair / dimensions); }
  std::uint32_t pairs() const { return dimensions / 2; }
};

Result<Base> read_base(const SpecReader& reader, const ModelSpec& spec, const RopeDefaults& defaults) {
  Base base{};
  LOCI_ASSIGN_OR_RETURN(base.dimensions,
                        reader.count_or("rope.dimension_count", 2, spec.head_dim, spec.head_dim));
  if (base.dimensions % 2 != 0) {
    return invalid_argument(fmt::format("expected an even number, found {}", base.dimensions),
                            reader.key("rope.dimension_count"));
  }
  LOCI_ASSIGN_OR_RETURN(base.base, reader.number_or("rope.freq_base", 0, 1e12, defaults.base));
  return base;
}

Result<double> read_factor(const SpecReader& reader) {
  // The older key means the same.
  const char* key = reader.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  return reader.number_or(key, 0, kMaxFactor, 1.0);
}

Result<std::uint32_t> read_original_context(const SpecReader& reader, const ModelSpec& spec) {
  return reader.count_or("rope.scaling.original_context_length", 1, kMaxContext, spec.context_length);
}

// Llama 3.1's scaling, where it is given by its numbers.
Status scale_llama3(const SpecReader& reader, const ModelSpec& spec, const Base& base, RopeSpec& rope) {
  LOCI_ASSIGN_OR_RETURN(const double factor, reader.number("rope.scaling.factor", 0, kMaxFactor));
  LOCI_ASSIGN_OR_RETURN(const double low, reader.number("rope.scaling.low_freq_factor", 0, kMaxFactor));
  LOCI_ASSIGN_OR_RETURN(const double high, reader.number("rope.scaling.high_freq_factor", low, kMaxFactor));
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t original, read_original_context(reader, spec));
  for (std::uint32_t i = 0; i < base.pairs(); ++i) {
    const double turns = original * base.frequency(i) / (2 * std::numbers::pi);  // in the original context
    const double smooth = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    rope.inverse_frequency[i] *= (1 - smooth) / factor + smooth;
  }
  return {};
}

Status scale_yarn(const SpecReader& reader, const ModelSpec& spec, const Base& base, bool truncates,
                  RopeSpec& rope) {
  LOCI_ASSIGN_OR_RETURN(const double factor, reader.number("rope.scaling.factor", 0, kMaxFactor));
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t original, read_original_context(reader, spec));
  LOCI_ASSIGN_OR_RETURN(const double fast,
                        reader.number_or("rope.scaling.yarn_beta_fast", 0, kMaxFactor, 32));
  LOCI_ASSIGN_OR_RETURN(const double slow, reader.number_or("rope.scaling.yarn_beta_slow", 0, kMaxFactor, 1));
  LOCI_ASSIGN_OR_RETURN(truncates, reader.flag_or("rope.scaling.yarn_truncate", truncates));
  // The pair (not whole) that turns `turns` times within the original context.
  const auto pair_of = [&](double turns) {
    return base.dimensions * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(base.base));
  };
  double low = pair_of(fast);
  double high = pair_of(slow);
  if (truncates) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, base.dimensions - 1.0);
  if (low == high) high += 0.001;
  for (std::uint32_t i = 0; i < base.pairs(); ++i) {
    const double stretched = std::clamp((i - low) / (high - low), 0.0, 1.0);
    rope.inverse_frequency[i] *= stretched / factor + (1 - stretched);
  }
  const double mscale = factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
  LOCI_ASSIGN_OR_RETURN(const double more, reader.number_or("rope.scaling.attn_factor", 0, kMaxMagnitude, 1));
  // Converters put Hugging Face's attention_factor, which is the whole, under this key.
  LOCI_ASSIGN_OR_RETURN(rope.magnitude,
                        reader.number_or("rope.scaling.yarn_attn_factor", 0, kMaxMagnitude, mscale * more));
  return {};
}

void divide(const std::vector<float>& divisors, RopeSpec& rope) {
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    rope.inverse_frequency[i] /= static_cast<double>(divisors[i]);
  }
}

// The tensor's factors, or none where the file has no such tensor.
Result<std::vector<float>> read_factor_tensor(SpecReader& reader, const std::string& name,
                                              std::uint32_t pairs) {
  LOCI_ASSIGN_OR_RETURN(const TensorView tensor, reader.tensor_if_any(name, 1, pairs));
  std::vector<float> factors(tensor.present() ? pairs : 0);
  if (tensor.present()) decode_row(tensor, 0, factors);
  LOCI_RETURN_IF_ERROR(check_factors(factors, name));
  return factors;
}

Status scale_longrope(SpecReader& reader, const ModelSpec& spec, RopeSpec& rope) {
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t original, read_original_context(reader, spec));
  const std::string which = spec.context_length > original ? "long" : "short";
  const std::uint32_t pairs = rope.dimensions / 2;
  std::vector<float> factors;
  for (const char* name : {"long", "short"}) {
    LOCI_ASSIGN_OR_RETURN(std::vector<float> some,
                          read_factor_tensor(reader, fmt::format("rope_factors_{}.weight", name), pairs));
    if (name == which) factors = std::move(some);
  }
  if (factors.empty()) {
    LOCI_ASSIGN_OR_RETURN(factors, reader.factors(fmt::format("rope.scaling.{}_factors", which), pairs));
  }
  const double stretch = static_cast<double>(spec.context_length) / original;
  const double magnitude =
      stretch > 1 && original > 1 ? std::sqrt(1 + std::log(stretch) / std::log(original)) : 1;
  LOCI_ASSIGN_OR_RETURN(rope.magnitude,
                        reader.number_or("rope.scaling.attn_factor", 0, kMaxMagnitude, magnitude));
  divide(factors, rope);
  return {};
}

Result<std::string> read_scaling_type(const SpecReader& reader) {
  if (reader.has("rope.scaling.type")) return reader.source().get_string(reader.key("rope.scaling.type"));
  // Phi 3's converter leaves the type out.
  return std::string(reader.exists("rope_factors_long.weight") ? "longrope" : "linear");
}

}  // namespace

Status check_rope(const RopeSpec& rope, double base, const std::string& field) {
  for (const double frequency : rope.inverse_frequency) {
    if (!(frequency > 0 && std::isfinite(frequency))) {
      return invalid_argument(fmt::format("expected a base whose frequencies are finite, found {}", base),
                              field);
    }
  }
  return {};
}

RopeSpec unscaled_rope(RopeLayout layout, std::uint32_t dimensions, double base, double divisor) {
  RopeSpec rope{.layout = layout, .dimensions = dimensions};
  const Base shape{dimensions, base};
  for (std::uint32_t i = 0; i < shape.pairs(); ++i) {
    rope.inverse_frequency.push_back(shape.frequency(i) / divisor);
  }
  return rope;
}

Result<RopeSpec> read_rope(SpecReader& reader, const ModelSpec& spec, const RopeDefaults& defaults) {
  LOCI_ASSIGN_OR_RETURN(const Base base, read_base(reader, spec, defaults));
  LOCI_ASSIGN_OR_RETURN(const std::string type, read_scaling_type(reader));
  RopeSpec rope = unscaled_rope(defaults.layout, base.dimensions, base.base);
  if (type == "linear") {
    LOCI_ASSIGN_OR_RETURN(const double factor, read_factor(reader));
    rope = unscaled_rope(defaults.layout, base.dimensions, base.base, factor);
  } else if (type == "llama3") {
    LOCI_RETURN_IF_ERROR(scale_llama3(reader, spec, base, rope));
  } else if (type == "yarn") {
    LOCI_RETURN_IF_ERROR(scale_yarn(reader, spec, base, defaults.yarn_truncates, rope));
  } else if (type == "longrope") {
    LOCI_RETURN_IF_ERROR(scale_longrope(reader, spec, rope));
  } else if (type != "none") {
    return invalid_argument(
        fmt::format("expected none, linear, llama3, yarn or longrope, found \"{}\"", type),
        reader.key("rope.scaling.type"));
  }
  LOCI_ASSIGN_OR_RETURN(const std::vector<float> divisors,
                        read_factor_tensor(reader, "rope_freqs.weight", base.pairs()));
  divide(divisors, rope);
  LOCI_RETURN_IF_ERROR(check_rope(rope, base.base, reader.key("rope.freq_base")));
  return rope;
}

}  // namespace loci
