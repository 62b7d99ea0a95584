// SPDX-License-Identifier: Apache-2.0
// Random tiny models in memory, with the layers of any family, for tests. A seed draws sizes, tensor types
// and which parts of ModelSpec a model has. (random_model_testing.h makes files of one family.)
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

// Owns the memory of the spec's tensors.
struct RandomSpec {
  ModelSpec spec;
  std::set<std::string> features;  // the features drawn: "sinks", "window", "q8_0", ...
  std::deque<std::vector<std::byte>> storage;
};

// The same seed makes the same model.
std::unique_ptr<RandomSpec> make_random_spec(std::uint64_t seed);

}  // namespace loci
