// SPDX-License-Identifier: Apache-2.0
// A conversation of a trace while it is replayed: its tokens so far, and the next token of a reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "loci/base/ids.h"
#include "loci/sim/trace.h"

namespace loci::sim {

// Number of words in traces; tokens from this on occur in no trace's text.
inline constexpr std::uint32_t kWords = 50'000;

// Thread-compatible.
class Talk {
 public:
  std::size_t next_turn = 0;    // index of the next turn in the trace
  std::vector<TokenId> tokens;  // the last prompt with its reply

  // Makes the turn's prompt, after the earlier tokens if the turn appends. Returns the number of earlier
  // tokens. O(tokens of the prompt).
  std::size_t begin(const Turn& turn);
  // The token of the turn's reply after `said` of its tokens; if the turn does not name its reply, a token of
  // the request's own. A reply may have as many pieces as tokens, so it is followed only once: `said` must
  // never decrease.
  TokenId next_token(const Turn& turn, std::uint32_t said, std::uint64_t request);
  // The turn's reply is made once more, from its first token on.
  void say_again() { reply_piece_ = reply_before_ = 0; }

 private:
  std::size_t reply_piece_ = 0;     // the piece of the next token
  std::uint32_t reply_before_ = 0;  // tokens of the pieces before it
};

}  // namespace loci::sim
