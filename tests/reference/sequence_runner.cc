// SPDX-License-Identifier: Apache-2.0
#include "reference/sequence_runner.h"

#include <utility>

#include "loci/base/check.h"

namespace loci {

SequenceRunner::SequenceRunner(Backend& backend, std::uint32_t max_tokens)
    : backend_(&backend), blocks_((max_tokens + kBlockTokens - 1) / kBlockTokens) {
  for (std::uint32_t group = 0; group < backend.info().groups.size(); ++group) {
    LOCI_CHECK(backend.allocate_blocks(group, blocks_).ok(), "a test's sequence must fit into memory");
  }
}

std::span<const float> SequenceRunner::run(std::span<const TokenId> tokens, std::uint32_t first_row) {
  LOCI_CHECK(first_row < tokens.size(), "at least one row of logits must be wanted");
  if (first_row > 0) run_span(tokens.first(first_row), 0, LogitsWanted::kNone);
  return run_span(tokens.subspan(first_row), first_row, LogitsWanted::kAll);
}

std::span<const float> SequenceRunner::run_span(std::span<const TokenId> tokens, std::uint32_t position,
                                                LogitsWanted logits) {
  Span span;
  span.tokens.assign(tokens.begin(), tokens.end());
  span.position = position;
  span.layers = {0, backend_->info().layers};
  span.logits = logits;
  const std::size_t used = (position + tokens.size() + kBlockTokens - 1) / kBlockTokens;
  LOCI_CHECK(used <= blocks_, "the sequence must fit into the pool");
  std::vector<SlotId> slots;
  for (std::uint32_t block = 0; block < used; ++block) slots.emplace_back(block);
  span.tables.assign(backend_->info().groups.size(), BlockTable{slots});
  Pass pass;
  pass.id = OperationId(++passes_);
  pass.spans.push_back(std::move(span));
  run_pass(*backend_, std::move(pass), results_);
  LOCI_CHECK(results_.size() == 1 && results_[0].status.ok(), "a pass without fills must succeed");
  return results_[0].logits;
}

}  // namespace loci
