// SPDX-License-Identifier: Apache-2.0
// Runs one sequence after another through a backend, for tests that compare its logits with an oracle's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "loci/base/ids.h"
#include "loci/compute/backend.h"

namespace loci {

// Thread-compatible. Takes the backend's whole pool; the backend must outlive it.
class SequenceRunner {
 public:
  // Allocates blocks for sequences of at most `max_tokens`.
  SequenceRunner(Backend& backend, std::uint32_t max_tokens);

  // Computes tokens from an empty context: those before `first_row` in one pass, the others in the
  // next. Returns their logits [tokens.size() - first_row, vocabulary]: row i follows token
  // first_row + i. Valid until the next call.
  std::span<const float> run(std::span<const TokenId> tokens, std::uint32_t first_row);

 private:
  std::span<const float> run_span(std::span<const TokenId> tokens, std::uint32_t position,
                                  LogitsWanted logits);

  Backend* backend_;
  std::uint32_t blocks_;
  std::uint64_t passes_ = 0;
  std::vector<SpanResult> results_;
};

}  // namespace loci
