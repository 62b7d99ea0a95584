// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/ledger.h"

#include "loci/base/check.h"

namespace loci::sim {

void Ledger::check(const CoreStats& stats) const {
  LOCI_CHECK(live_ == std::uint64_t{stats.running} + stats.queued + stats.paused,
             "each request that arrived is live or has ended");
  LOCI_CHECK(rejected_ == stats.rejections_total, "rejected requests are told of once");
  LOCI_CHECK(prompt_ == stats.tokens_prompt_total && cached_ == stats.tokens_cached_total,
             "prompts' tokens are counted once");
  LOCI_CHECK(sampled_ == stats.tokens_generated_total, "each sampled token is told of");
  LOCI_CHECK(passes_ == stats.passes_total && rows_ == stats.tokens_computed_total,
             "each planned row is computed");
  LOCI_CHECK(in_flight_ == stats.moves_in_flight, "each move is in flight or has ended");
  for (std::size_t link = 0; link < kCoreLinks; ++link)
    LOCI_CHECK(results_[link] == stats.moves[link].ended, "each move ends once, with its result");
  LOCI_CHECK(hidden_saved_ == stats.hidden_saved_total && hidden_loaded_ == stats.hidden_loaded_total,
             "blocks move as hidden states as often as the core says");
}

void Ledger::check_end(const CoreStats& stats) const {
  check(stats);
  LOCI_CHECK(live_ == 0 && in_flight_ == 0, "all ends");
  LOCI_CHECK(stats.blocks_pinned == 0, "what nobody needs is not pinned");
  LOCI_CHECK(begun_ == over_, "bytes that began to move have ended or were lost");
}

void Ledger::restart() {
  Ledger next;
  next.begun_ = next.over_ = begun_;  // what was moving is lost
  *this = next;
}

}  // namespace loci::sim
