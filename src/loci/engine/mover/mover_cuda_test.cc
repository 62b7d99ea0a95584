// SPDX-License-Identifier: Apache-2.0
// All tests of movers, on the CUDA backend and its streams (here those of the simulated device).
#include "loci/compute/cuda/cuda_backend.h"
#include "loci/engine/testing/mover_testing.h"

namespace loci {
namespace {

std::unique_ptr<Backend> make_backend(const ModelSpec& spec) {
  return std::move(make_cuda_backend(spec, {.deterministic = true, .max_batch_tokens = 128})).value();
}

INSTANTIATE_TEST_SUITE_P(Cuda, MoverTest,
                         testing::Values(Case{"full", {0, 0, 0}, 0, make_backend},
                                         Case{"mixed", {80, 0, 80, 0}, 0, make_backend}),
                         case_name);

}  // namespace
}  // namespace loci
