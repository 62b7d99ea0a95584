// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "loci/base/random.h"
#include "loci/sim/fields.h"
#include "loci/sim/packed_file.h"

namespace loci::sim {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMooncakeBlock = 512;
constexpr double kTimeMax = 1e12;  // milliseconds: 30 years

// One line of a file, and how to complain about it.
class Line {
 public:
  Line(const std::string& file, std::uint64_t number) : file_(file), number_(number) {}

  Status parse(std::string_view text) {
    json_ = Json::parse(text, nullptr, false);
    if (json_.is_object()) return {};
    const std::string found(text.substr(0, 40));
    return wrong("line", "a JSON object", json_.is_discarded() ? "'" + found + "'" : json_.type_name());
  }
  bool has(const char* field) const { return json_.contains(field); }
  Status known(std::initializer_list<std::string_view> names) const {
    for (const auto& [name, value] : json_.items()) {
      bool found = false;
      for (const std::string_view one : names) found = found || name == one;
      if (!found) return wrong(name, fmt::format("one of {}", joined(names)), "this field");
    }
    return {};
  }
  Result<std::uint64_t> count(const char* field, std::uint64_t least, std::uint64_t most) const {
    const auto at = json_.find(field);
    const std::string expected = fmt::format("a whole number from {} to {}", least, most);
    if (at == json_.end()) return wrong(field, expected, "nothing");
    if (!at->is_number_unsigned()) return wrong(field, expected, at->dump());
    const auto value = at->get<std::uint64_t>();
    if (value < least || value > most) return wrong(field, expected, at->dump());
    return value;
  }
  Result<Nanos> millis(const char* field) const {
    const auto at = json_.find(field);
    const std::string expected = "milliseconds from 0 to 10^12";
    if (at == json_.end()) return wrong(field, expected, "nothing");
    if (!at->is_number()) return wrong(field, expected, at->dump());
    const auto value = at->get<double>();
    if (!std::isfinite(value) || value < 0 || value > kTimeMax) return wrong(field, expected, at->dump());
    return static_cast<Nanos>(std::llround(value * 1e6));
  }
  Result<std::string> name(const char* field) const {
    const auto at = json_.find(field);
    if (at == json_.end()) return wrong(field, "a name or a whole number", "nothing");
    if (at->is_string()) return "s" + at->get<std::string>();
    if (at->is_number_unsigned()) return "n" + at->dump();
    return wrong(field, "a name or a whole number", at->dump());
  }
  // One for each block of `block` tokens, the last of which may be a part of one.
  Result<std::vector<Piece>> hashes(const char* field, std::uint64_t prompt, std::uint64_t block) const {
    const auto at = json_.find(field);
    const std::uint64_t count = (prompt + block - 1) / block;
    const std::string expected = fmt::format("{} hashes for {} tokens in blocks of {}", count, prompt, block);
    if (at == json_.end()) return wrong(field, expected, "nothing");
    if (!at->is_array()) return wrong(field, expected, at->type_name());
    if (at->size() != count) return wrong(field, expected, std::to_string(at->size()));
    std::vector<Piece> pieces;
    pieces.reserve(count);
    for (const Json& hash : *at) {
      if (!hash.is_number_unsigned()) return wrong(field, "whole numbers below 2^64", hash.dump());
      const std::uint64_t left = prompt - pieces.size() * block;
      // What is after a block depends on all before it, so a part of a block is another content.
      const std::uint64_t content = mix64(hash.get<std::uint64_t>() ^ (block << 40));
      pieces.push_back({content, static_cast<std::uint32_t>(std::min(left, block))});
    }
    return pieces;
  }
  // A block for each hash, as long as `lengths` says; together they are the prompt, or the prompt and the
  // reply.
  Result<std::vector<Piece>> blocks(const char* lengths, const char* field, std::uint64_t prompt,
                                    std::uint64_t reply) const {
    const Json& sizes = json_[lengths];
    const auto at = json_.find(field);
    if (at == json_.end() || !at->is_array() || at->size() != sizes.size()) {
      return wrong(field, fmt::format("{} hashes, one for each of {}", sizes.size(), lengths),
                   at == json_.end() ? "nothing"
                   : at->is_array()  ? std::to_string(at->size())
                                     : at->dump());
    }
    std::vector<Piece> pieces;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Json& size = sizes[i];
      const std::uint64_t tokens = size.is_number_unsigned() ? size.get<std::uint64_t>() : 0;
      if (tokens == 0 || tokens > kTraceTokensMax)
        return wrong(lengths, fmt::format("whole numbers from 1 to {}", kTraceTokensMax), size.dump());
      const Json& hash = (*at)[i];
      if (!hash.is_number_unsigned()) return wrong(field, "whole numbers below 2^64", hash.dump());
      sum += tokens;
      if (sum > prompt + reply) break;
      pieces.push_back({mix64(hash.get<std::uint64_t>()), static_cast<std::uint32_t>(tokens)});
    }
    if (sum == prompt || sum == prompt + reply) return pieces;
    return wrong(
        lengths,
        fmt::format("{} tokens in all, the prompt's, or {}, with the reply's", prompt, prompt + reply),
        sum > prompt + reply ? "more" : std::to_string(sum));
  }
  bool is_list(const char* field) const {
    const auto at = json_.find(field);
    return at != json_.end() && at->is_array();
  }
  Status wrong(std::string_view field, std::string_view expected, std::string_view found) const {
    return invalid_argument(
        fmt::format("{}:{}: {}: expected {}, found {}", file_, number_, field, expected, found),
        std::string(field));
  }

 private:
  const std::string& file_;
  std::uint64_t number_;
  Json json_;
};

// Calls `take(line)` for each line that is not empty. Errors: the first that `take` returns; too many.
template <class Take>
Status each_line(const std::string& text, const std::string& name, const Take& take) {
  std::uint64_t number = 0, requests = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    const std::string_view content = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (content.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Line line(name, number);
    if (++requests > kTraceRequestsMax) {
      return line.wrong("file", fmt::format("at most {} requests", kTraceRequestsMax), "more");
    }
    LOCI_RETURN_IF_ERROR(line.parse(content));
    LOCI_RETURN_IF_ERROR(take(line));
  }
  if (requests == 0) return invalid_argument(name + ": expected at least one request, found none", "file");
  return {};
}

class LociReader {
 public:
  explicit LociReader(std::string name) { trace_.name = std::move(name); }
  Trace take() { return std::move(trace_); }

  Status add(const Line& line) {
    LOCI_RETURN_IF_ERROR(line.known({"time_ms", "conversation", "prompt_tokens", "reply_tokens", "think_ms",
                                     "cancel_ms", "block_tokens", "hashes"}));
    LOCI_ASSIGN_OR_RETURN(const Nanos at, line.millis("time_ms"));
    if (at < last_)
      return line.wrong("time_ms", fmt::format("at least {} ms, that of the line before", last_ / 1'000'000),
                        fmt::format("{} ms", at / 1'000'000));
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

  Status add_hashed(const Line& line, Turn turn, std::uint64_t prompt) {
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

  Status add_appending(const Line& line, Turn turn, std::uint64_t prompt) {
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

  void add_turn(const Line& line, Turn turn, std::uint64_t prompt, Known& known) {
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

  Result<Known*> find(const Line& line) {
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

std::uint64_t tokens_of(const std::vector<Piece>& pieces) {
  std::uint64_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.tokens;
  return sum;
}

std::vector<TurnInTime> in_time_order(const Trace& trace) {
  std::vector<TurnInTime> all;
  all.reserve(trace.requests());
  for (std::uint32_t c = 0; c < trace.conversations.size(); ++c) {
    Nanos last = 0;
    const std::vector<Turn>& turns = trace.conversations[c].turns;
    for (std::uint32_t t = 0; t < turns.size(); ++t) {
      const Nanos due = turns[t].noted >= 0 ? turns[t].noted : std::max(turns[t].at, last + turns[t].after);
      last = std::max(last, due);
      all.push_back({last, c, t});
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

void keep_first(Trace& trace, std::uint64_t requests) {
  const std::vector<TurnInTime> order = in_time_order(trace);
  if (order.size() <= requests) return;
  std::vector<std::uint32_t> kept(trace.conversations.size(), 0);
  for (std::size_t i = 0; i < requests; ++i) ++kept[order[i].conversation];
  for (std::size_t c = 0; c < kept.size(); ++c) trace.conversations[c].turns.resize(kept[c]);
  std::erase_if(trace.conversations, [](const Conversation& one) { return one.turns.empty(); });
}

Status scale_times(Trace& trace, double scale) {
  constexpr double kMost = kTimeMax * kNanosPerMilli;
  for (const Conversation& conversation : trace.conversations) {
    double due = 0;
    for (const Turn& turn : conversation.turns) {
      const double noted = static_cast<double>(std::max<Nanos>(turn.noted, 0)) * scale;
      due = std::max(static_cast<double>(turn.at) * scale, due + static_cast<double>(turn.after) * scale);
      if (std::max(due, noted) <= kMost) continue;
      return invalid_argument(
          fmt::format(
              "{}: trace.time_scale: expected turns due within 10^12 ms of the begin, found one at {:.3g} ms",
              trace.name, std::max(due, noted) / kNanosPerMilli),
          "trace.time_scale");
    }
  }
  const auto apply = [scale](Nanos& time) { time = static_cast<Nanos>(static_cast<double>(time) * scale); };
  for (Conversation& conversation : trace.conversations) {
    for (Turn& turn : conversation.turns) {
      apply(turn.at);
      apply(turn.after);
      if (turn.noted >= 0) apply(turn.noted);
    }
  }
  return {};
}

std::uint64_t Trace::requests() const {
  std::uint64_t count = 0;
  for (const Conversation& conversation : conversations) count += conversation.turns.size();
  return count;
}

Result<Trace> parse_trace(const std::string& text, const std::string& name) {
  LociReader reader(name);
  LOCI_RETURN_IF_ERROR(each_line(text, name, [&](const Line& line) { return reader.add(line); }));
  return reader.take();
}

Result<Trace> parse_mooncake(const std::string& text, const std::string& name) {
  Trace trace;
  trace.name = name;
  Nanos last = 0;
  LOCI_RETURN_IF_ERROR(each_line(text, name, [&](const Line& line) -> Status {
    Turn turn;
    turn.appends = false;
    LOCI_ASSIGN_OR_RETURN(turn.at, line.millis("timestamp"));
    if (turn.at < last) return line.wrong("timestamp", "times that do not go back", "an earlier one");
    last = turn.noted = turn.at;
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t prompt, line.count("input_length", 1, kTraceTokensMax));
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t reply, line.count("output_length", 1, kTraceTokensMax));
    turn.reply_tokens = static_cast<std::uint32_t>(reply);
    LOCI_ASSIGN_OR_RETURN(turn.pieces, line.hashes("hash_ids", prompt, kMooncakeBlock));
    trace.conversations.push_back({{std::move(turn)}});
    return {};
  }));
  return trace;
}

Result<Trace> read_trace(const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  return parse_trace(text, path);
}

Result<Trace> read_mooncake(const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  return parse_mooncake(text, path);
}

}  // namespace loci::sim
