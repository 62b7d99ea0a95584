// SPDX-License-Identifier: Apache-2.0
// Finds the remembered tokens that spell the beginning of a rendered conversation.
//
// A sequence spells symbols: a control token itself, another token the bytes that it stands for. A rendering
// is symbols too: the template's control tokens, and text between them. So text never matches a control
// token, whatever it says, and a sampled end of turn is the template's own.
//
// One text may have been remembered in several tokenisations. All branches of the trie that spell the
// rendering are followed, control token by control token; the one that leads furthest wins, then the one
// remembered last. Where none goes on the match is cut back to a place at which tokenising the rest cannot
// split what belongs together:
//   - after a control token,
//   - where a remembered prompt or reply ends,
//   - inside a reply where its segment's text ends, or before white space, punctuation or U+FFFD (which a
//     reply that ended inside a character is shown with).
// So an edited message of a user is tokenised as a whole, and a reply that a template trimmed or a client
// cut short keeps the tokens that the model chose.
//
// Text that a tokenizer does not keep (normalised, characters without a token) is spelled by no token; there
// a segment's own tokenisation is followed instead (`encoded`).
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "loci/model/chat_template.h"
#include "loci/model/tokenizer.h"
#include "loci/serve/history/token_trie.h"

namespace loci {

struct HistoryMatch {
  std::vector<TokenId> tokens;    // remembered; they spell all segments before `segment`
  std::size_t segment = 0;        // as many as there are: all is spelled
  std::size_t text_bytes = 0;     // of the segment's text, which the tokens spell too
  std::size_t tokens_before = 0;  // those of `tokens` that spell the segments before it
  // The match may lead further if it is told how this segment is tokenised.
  std::optional<std::size_t> wanted;
};

using EncodedSegments = std::vector<std::optional<std::vector<TokenId>>>;

// What the calling thread has used of a processor. It stands still while the thread waits, as on a busy
// machine: else a conversation would lose its tokens there.
std::chrono::nanoseconds thread_time();

// `encoded`: by segment, the tokens of its text (without the control token) where they are known. Time: the
// rendering's length times the branches that spell it; bounded by a fixed multiple of the length, and by
// `until`, of thread_time(): from then on no more is looked for, and the match has what was found.
HistoryMatch match_history(const TokenTrie& trie, const Tokenizer& tokenizer,
                           std::span<const ChatSegment> segments, const EncodedSegments& encoded,
                           std::chrono::nanoseconds until = std::chrono::nanoseconds::max());

}  // namespace loci
