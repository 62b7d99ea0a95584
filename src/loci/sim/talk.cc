// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/talk.h"

#include "loci/base/random.h"

namespace loci::sim {
namespace {

TokenId token_at(std::uint64_t content, std::uint32_t index) {
  return TokenId(static_cast<std::uint32_t>(random_word(content, index) % kWords));
}

}  // namespace

std::size_t Talk::begin(const Turn& turn) {
  reply_piece_ = 0;
  reply_before_ = 0;
  if (!turn.appends) tokens.clear();
  const std::size_t before = tokens.size();
  for (const Piece& piece : turn.pieces) {
    for (std::uint32_t i = 0; i < piece.tokens; ++i)
      tokens.push_back(token_at(piece.content, piece.skip + i));
  }
  return before;
}

TokenId Talk::next_token(const Turn& turn, std::uint32_t said, std::uint64_t request) {
  for (; reply_piece_ < turn.reply.size(); ++reply_piece_) {
    const Piece& piece = turn.reply[reply_piece_];
    const std::uint32_t index = said - reply_before_;
    if (index < piece.tokens) return token_at(piece.content, piece.skip + index);
    reply_before_ += piece.tokens;
  }
  return token_at(request + 0x5eed, said);
}

}  // namespace loci::sim
