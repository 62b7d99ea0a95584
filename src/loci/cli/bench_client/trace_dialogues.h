// SPDX-License-Identifier: Apache-2.0
// A trace of requests (docs/traces.md) as something to say: a trace has no words, so they are made, as many
// as it has tokens and equal where its contents are equal. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/cli/bench_client/dialogue.h"
#include "loci/cli/bench_client/turn_schedule.h"
#include "loci/sim/trace.h"

namespace loci {

struct TraceDialogues {
  std::vector<Dialogue> dialogues;
  std::vector<std::vector<TurnTime>> times;  // of each one's turns
  std::uint64_t cancels = 0;                 // requests that the trace's clients left, which here go on
};

// About a token each: common English words, of which the content decides. Word i of a content is always the
// same.
std::string words_of(const sim::Piece& piece);

// Prompts whose contents the trace names are said whole, one by one; others go on from the server's reply.
// Errors: kInvalidArgument where the prompts have more than kSaidTokensMax tokens.
Result<TraceDialogues> dialogues_of(const sim::Trace& trace);

}  // namespace loci
