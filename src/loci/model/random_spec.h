// SPDX-License-Identifier: Apache-2.0
// Random tiny models of any family's layer, in memory, for tests: a seed draws sizes, tensor types and
// which parts of ModelSpec a model has. (random_model.h makes files, of one family.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "loci/model/model_spec.h"

namespace loci {

// Owns what the spec's tensors point to.
struct RandomSpec {
  ModelSpec spec;
  std::set<std::string> features;  // what was drawn: "sinks", "window", "q8_0", ...
  std::deque<std::vector<std::byte>> storage;
};

// The same seed makes the same model.
std::unique_ptr<RandomSpec> make_random_spec(std::uint64_t seed);

}  // namespace loci
