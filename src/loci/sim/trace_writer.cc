// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/trace_writer.h"

#include <fmt/format.h>
#include <sodium.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "loci/base/little_endian.h"
#include "loci/base/random.h"

namespace loci::sim {
namespace {

static_assert(std::tuple_size_v<TraceKey> == crypto_shorthash_KEYBYTES);

std::uint64_t keyed(std::uint64_t content, const TraceKey& key) {
  const auto in = little_endian(content);
  std::array<char, 8> out{};
  crypto_shorthash(reinterpret_cast<unsigned char*>(out.data()), in.data(), in.size(), key.data());
  return from_little_endian<std::uint64_t>({out.data(), out.size()});
}

// To the nanosecond, without zeros at the end.
std::string millis(Nanos time) {
  std::string text = fmt::format("{}.{:06}", time / kNanosPerMilli, time % kNanosPerMilli);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

// The blocks of prompt and reply. A reply that goes on inside the prompt's last block is one with it; where a
// reply begins inside a block otherwise, no block can say so, and it is left out.
std::vector<Piece> blocks_of(const Turn& turn) {
  std::vector<Piece> blocks = turn.pieces;
  for (const Piece& piece : turn.reply) {
    Piece& last = blocks.back();
    if (piece.skip == 0) {
      blocks.push_back(piece);
    } else if (last.content == piece.content && last.skip == 0 && last.tokens == piece.skip) {
      last.tokens += piece.tokens;
    } else {
      return turn.pieces;
    }
  }
  return blocks;
}

// A format without skips needs another name for what is not at its content's begin.
std::uint64_t named(const Piece& block) {
  return block.skip == 0 ? block.content : mix64(block.content ^ mix64(block.skip));
}

std::string hashes_text(const Turn& turn, const TraceKey& key) {
  std::string lengths, hashes;
  for (const Piece& piece : blocks_of(turn)) {
    const char* comma = lengths.empty() ? "" : ",";
    lengths += fmt::format("{}{}", comma, piece.tokens);
    hashes += fmt::format("{}{}", comma, keyed(named(piece), key));
  }
  return fmt::format(R"(,"block_tokens":[{}],"hashes":[{}])", lengths, hashes);
}

}  // namespace

std::string trace_text(const Trace& trace, const TraceKey& key) {
  std::string text;
  std::vector<std::uint64_t> said(trace.conversations.size());  // tokens of the last prompt and reply
  for (const TurnInTime& at : in_time_order(trace)) {
    const Turn& turn = trace.conversations[at.conversation].turns[at.turn];
    const bool appends = turn.appends && at.turn > 0;
    const std::uint64_t prompt = tokens_of(turn.pieces) + (appends ? said[at.conversation] : 0);
    said[at.conversation] = prompt + turn.reply_tokens;
    text += fmt::format(R"({{"time_ms":{},"conversation":{},"prompt_tokens":{},"reply_tokens":{})",
                        millis(at.at), at.conversation, prompt, turn.reply_tokens);
    if (at.turn > 0 && (turn.after > 0 || turn.at == 0))
      text += fmt::format(R"(,"think_ms":{})", millis(turn.after));
    if (turn.cancel_after >= 0) text += fmt::format(R"(,"cancel_ms":{})", millis(turn.cancel_after));
    text += (appends ? "" : hashes_text(turn, key)) + "}\n";
  }
  return text;
}

Status write_trace(const Trace& trace, const std::string& path) {
  TraceKey key;
  ::randombytes_buf(key.data(), key.size());
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << trace_text(trace, key);
  file.close();
  if (!file)
    return {StatusCode::kUnavailable,
            fmt::format("{}: {}", path, errno != 0 ? std::strerror(errno) : "cannot be written")};
  return {};
}

}  // namespace loci::sim
