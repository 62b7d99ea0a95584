// SPDX-License-Identifier: Apache-2.0
// Loci's own format.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "loci/base/random.h"
#include "loci/sim/trace_line.h"
#include "loci/sim/trace_readers.h"

namespace loci::sim {
namespace {

double millis(Nanos time) { return static_cast<double>(time) / kNanosPerMilli; }

class LociReader {
 public:
  explicit LociReader(std::string name) { trace_.name = std::move(name); }
  Trace take() { return std::move(trace_); }

  Status add(const TraceLine& line) {
    LOCI_RETURN_IF_ERROR(line.known({"time_ms", "conversation", "prompt_tokens", "reply_tokens", "think_ms",
                                     "cancel_ms", "block_tokens", "hashes"}));
    LOCI_ASSIGN_OR_RETURN(const Nanos at, line.millis("time_ms"));
    if (at < last_)
      return line.wrong("time_ms", fmt::format("at least {} ms, that of the line before", millis(last_)),
                        fmt::format("{} ms", millis(at)));
    last_ = at;
    Turn turn;
    turn.at = turn.noted = at;
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t prompt, line.count("prompt_tokens", 1, kTraceTokensMax));
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t reply, line.count("reply_tokens", 1, kTraceTokensMax));
    turn.reply_tokens = static_cast<std::uint32_t>(reply);
    if (line.has("think_ms")) {
      LOCI_ASSIGN_OR_RETURN(turn.after, line.millis("think_ms"));
    }
    if (line.has("cancel_ms")) {
      LOCI_ASSIGN_OR_RETURN(turn.cancel_after, line.millis("cancel_ms"));
    }
    if (line.has("hashes") || line.has("block_tokens")) return add_hashed(line, std::move(turn), prompt);
    return add_appending(line, std::move(turn), prompt);
  }

 private:
  struct Known {
    std::size_t conversation = 0;
    std::uint64_t tokens = 0;  // of its last prompt and reply
  };

  Status add_hashed(const TraceLine& line, Turn turn, std::uint64_t prompt) {
    if (line.is_list("block_tokens")) {
      LOCI_ASSIGN_OR_RETURN(const std::vector<Piece> all,
                            line.blocks("block_tokens", "hashes", prompt, turn.reply_tokens));
      split(all, prompt, turn);
    } else {
      LOCI_ASSIGN_OR_RETURN(const std::uint64_t block, line.count("block_tokens", 1, 1u << 20));
      LOCI_ASSIGN_OR_RETURN(turn.pieces, line.hashes("hashes", prompt, block));
    }
    turn.appends = false;
    if (!line.has("think_ms") && !line.has("conversation")) {  // its content and time depend on no other turn
      trace_.conversations.push_back({{std::move(turn)}});
      return {};
    }
    LOCI_ASSIGN_OR_RETURN(Known * known, find(line));
    add_turn(line, std::move(turn), prompt, *known);
    return {};
  }

  Status add_appending(const TraceLine& line, Turn turn, std::uint64_t prompt) {
    LOCI_ASSIGN_OR_RETURN(Known * known, find(line));
    if (prompt <= known->tokens) {
      return line.wrong(
          "prompt_tokens",
          fmt::format("more than the {} of the conversation's last prompt and reply (or hashes)",
                      known->tokens),
          std::to_string(prompt));
    }
    const std::size_t number = trace_.conversations[known->conversation].turns.size();
    const std::uint64_t content = mix64(mix64(known->conversation + 1) ^ number);
    turn.pieces = {{content, static_cast<std::uint32_t>(prompt - known->tokens)}};
    add_turn(line, std::move(turn), prompt, *known);
    return {};
  }

  void add_turn(const TraceLine& line, Turn turn, std::uint64_t prompt, Known& known) {
    std::vector<Turn>& turns = trace_.conversations[known.conversation].turns;
    if (turns.empty()) turn.after = 0;  // there is no reply to think about
    if (line.has("think_ms") && !turns.empty()) turn.at = 0;
    known.tokens = prompt + turn.reply_tokens;
    turns.push_back(std::move(turn));
  }

  // The prompt's blocks, and the reply's: one may be both.
  static void split(const std::vector<Piece>& all, std::uint64_t prompt, Turn& turn) {
    std::uint64_t left = prompt;
    for (const Piece& piece : all) {
      const auto mine = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, piece.tokens));
      if (mine > 0) turn.pieces.push_back({piece.content, mine});
      if (mine < piece.tokens) turn.reply.push_back({piece.content, piece.tokens - mine, mine});
      left -= mine;
    }
  }

  Result<Known*> find(const TraceLine& line) {
    LOCI_ASSIGN_OR_RETURN(const std::string name, line.name("conversation"));
    const auto [at, fresh] = known_.try_emplace(name, Known{trace_.conversations.size(), 0});
    if (fresh) trace_.conversations.emplace_back();
    return &at->second;
  }

  Trace trace_;
  Nanos last_ = 0;
  std::unordered_map<std::string, Known> known_;  // never iterated
};

}  // namespace

Result<Trace> parse_trace(const std::string& text, const std::string& name) {
  LociReader reader(name);
  LOCI_RETURN_IF_ERROR(each_trace_line(text, name, [&](const TraceLine& line) { return reader.add(line); }));
  return reader.take();
}

}  // namespace loci::sim
