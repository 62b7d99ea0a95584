// SPDX-License-Identifier: Apache-2.0
// A conversation of a trace as it is said: its tokens so far, and the next one of a reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "loci/base/ids.h"
#include "loci/sim/trace.h"

namespace loci::sim {

// Words that traces say; a token beyond them is nobody's.
inline constexpr std::uint32_t kWords = 50'000;

// Thread-compatible.
class Talk {
 public:
  std::size_t next_turn = 0;    // of the trace's
  std::vector<TokenId> tokens;  // the last prompt with its reply

  // Says the turn's prompt, behind what was said before where the turn appends; returns how many tokens those
  // are. O(tokens of the prompt).
  std::size_t begin(const Turn& turn);
  // What the turn says that is replied behind so many tokens of it, or else tokens of the request's own.
  // A reply may have as many pieces as tokens, so it is gone along once: `said` never falls.
  TokenId next_token(const Turn& turn, std::uint32_t said, std::uint64_t request);

 private:
  std::size_t reply_piece_ = 0;     // what the next token is of
  std::uint32_t reply_before_ = 0;  // tokens of the pieces before it
};

}  // namespace loci::sim
