// SPDX-License-Identifier: Apache-2.0
// Where a history that outgrows its context is cut (AttentionStore §3.4; the paper drops the oldest half).
//
// The beginning stays: the first block (attention sinks: without it a small model is lost) and the system
// prompt. A *cut* drops a fixed number of whole blocks after it, and each further cut as many more:
//
//   history   | front | cut 1 | cut 2 | ... kept ...        tokens
//   computed  | front | ... kept ...                        at most the limit, which leaves room for a reply
//
// Cuts depend on the history's length (and on what stays the same from turn to turn: the context, the front,
// the class of room) alone, so a client that sends a history that has grown finds the state of the turn
// before, whether the server keeps the conversation or not. A cut is made once for many turns, not once a
// turn.
//
// Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "loci/base/status.h"

namespace loci {

// Tokens [begin, end) of a history.
struct TokenRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

struct TruncationRule {
  std::uint32_t context_tokens = 0;
  std::uint32_t drop_percent = 50;  // of the context that a cut drops; 1 to 90
};

// What a conversation asks for, the same in each of its turns.
struct TruncationNeeds {
  std::uint32_t front_tokens = 0;  // that stay in front: the system prompt; the first block in any case
  std::uint32_t reply_tokens = 0;  // that the client wants; 0: it did not say
};

class Truncation {
 public:
  // Room for the reply is an eighth of the context; a quarter, then a half where
  // the client wants more (steps, so that small changes of its wish move no cut). A cut leaves at least a
  // quarter of what lies between the front and the limit. Errors: kResourceExhausted where the front leaves
  // too little of the context to drop from; it names the limit.
  static Result<Truncation> make(const TruncationRule& rule, const TruncationNeeds& needs);

  std::uint32_t front_tokens() const { return front_; }  // whole blocks

  // One range for each cut, the first at front_tokens(), each where the last one ends; none up to the limit.
  std::vector<TokenRange> cuts(std::uint32_t history_tokens) const;

 private:
  Truncation(std::uint32_t limit, std::uint32_t front, std::uint32_t cut)
      : limit_(limit), front_(front), cut_(cut) {}

  std::uint32_t limit_;
  std::uint32_t front_;
  std::uint32_t cut_;  // whole blocks
};

}  // namespace loci
