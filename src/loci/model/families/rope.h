// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding as files describe it: a base, and perhaps a scaling of its frequencies, which
// stretches a model's context.
#pragma once

#include <cstdint>
#include <string>

#include "loci/model/families/spec_reader.h"
#include "loci/model/model_spec.h"

namespace loci {

inline constexpr std::uint32_t kMaxContext = 1u << 27;  // tokens; a limit against absurd files

// A family's values for what its files leave out.
struct RopeDefaults {
  RopeLayout layout = RopeLayout::kHalves;  // of the file at hand
  double base = 10000;
  bool yarn_truncates = true;  // YaRN's corrected dimensions are rounded outwards to whole ones
};

// Reads rope.* of a model whose head_dim and context_length are set:
//
//   none, linear  positions are divided by scaling.factor (or by scale_linear, its older name)
//   llama3        slow pairs are divided by the factor, fast ones not: from rope_freqs.weight in a GGUF
//                 file, from scaling.{factor,low_freq_factor,high_freq_factor,original_context_length}
//   yarn          the same with a ramp over dimensions (Peng et al. 2023), and a magnitude
//   longrope      a divisor for each pair: rope_factors_{long,short}.weight in a GGUF file, else
//                 scaling.{long,short}_factors, and a magnitude. The long ones serve contexts beyond
//                 scaling.original_context_length. Here the model's context decides once, not each
//                 sequence's length: state that was computed before stays right when a sequence grows.
//
// Errors: kInvalidArgument naming the key or tensor.
Result<RopeSpec> read_rope(SpecReader& reader, const ModelSpec& spec, const RopeDefaults& defaults);

// Frequencies base^(-2i/dimensions) / divisor, without the file's scaling. Layers of Gemma 3 that have a
// window use another base than the others.
RopeSpec unscaled_rope(RopeLayout layout, std::uint32_t dimensions, double base, double divisor = 1);
// Returns an error if a frequency is not a finite number above zero; `field` is the base's key.
Status check_rope(const RopeSpec& rope, double base, const std::string& field);

}  // namespace loci
