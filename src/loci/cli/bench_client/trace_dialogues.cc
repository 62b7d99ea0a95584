// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/trace_dialogues.h"

#include <fmt/format.h>

#include "loci/base/units.h"

namespace loci {

std::string words_of(const sim::Piece& piece) {
  std::string out;
  for (std::uint32_t i = 0; i < piece.tokens; ++i) {
    if (i > 0) out += ' ';
    out += common_word(random_word(piece.content, std::uint64_t{piece.skip} + i));
  }
  return out;
}

Result<TraceDialogues> dialogues_of(const sim::Trace& trace) {
  std::uint64_t words = 0;
  for (const sim::Conversation& conversation : trace.conversations) {
    for (const sim::Turn& turn : conversation.turns) words += sim::tokens_of(turn.pieces);
  }
  if (words > kSaidTokensMax) {
    return invalid_argument(
        fmt::format("expected prompts of at most {} tokens in all, found {}: take fewer requests "
                    "(--trace-requests)",
                    format_count(kSaidTokensMax), format_count(words)),
        "--trace");
  }
  TraceDialogues out;
  for (const sim::Conversation& conversation : trace.conversations) {
    Dialogue& dialogue = out.dialogues.emplace_back();
    std::vector<TurnTime>& times = out.times.emplace_back();
    for (const sim::Turn& turn : conversation.turns) {
      std::string text;
      for (const sim::Piece& piece : turn.pieces) {
        if (!text.empty()) text += ' ';
        text += words_of(piece);
      }
      dialogue.turns.push_back(std::move(text));
      dialogue.reply_tokens.push_back(turn.reply_tokens);
      dialogue.alone.push_back(!turn.appends);
      times.push_back({turn.at, turn.after});
      out.cancels += turn.cancel_after >= 0 ? 1 : 0;
    }
  }
  return out;
}

}  // namespace loci
