// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/weka.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "loci/base/random.h"
#include "loci/sim/draws.h"
#include "loci/sim/fields.h"
#include "loci/sim/json_text.h"
#include "loci/sim/trace_line.h"

namespace loci::sim {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kIdsMax = std::uint64_t{1} << 32;  // of a session, times the tokens of a block
// Of a file. It may have many times as many pieces as runs: a thousand prompts of one run each make a million
// pieces in a session whose first prompt has a thousand runs.
constexpr std::uint64_t kPiecesMax = std::uint64_t{1} << 26;

Nanos nanos(double seconds) { return static_cast<Nanos>(std::llround(seconds * 1e9)); }

// Seconds that may be absent or null.
std::optional<Nanos> read_optional(Fields& fields, const char* name) {
  if (!fields.has(name) || fields.raw(name).is_null()) return std::nullopt;
  double seconds = 0;
  fields.read(name, seconds, 0, kTraceSecondsMax);
  return nanos(seconds);
}

Nanos read_time(Fields& fields, Nanos last) {
  double seconds = 0;
  fields.require("t", seconds, 0, kTraceSecondsMax);
  const Nanos at = nanos(seconds);
  if (at < last) fields.wrong("t", "times that do not go back", shown(fields.raw("t")));
  return at;
}

std::optional<WekaRun> run_of(const Json& json) {
  if (json.is_number_unsigned()) return WekaRun{json.get<std::uint64_t>(), 1};
  const bool pair =
      json.is_array() && json.size() == 2 && json[0].is_number_unsigned() && json[1].is_number_unsigned();
  if (!pair) return std::nullopt;
  return WekaRun{json[0].get<std::uint64_t>(), json[1].get<std::uint64_t>()};
}

// `hash_runs` as [first, count], or the original's `hash_ids`.
void read_blocks(Fields& fields, std::uint32_t block, WekaRequest& request) {
  const char* const name = fields.has("hash_ids") ? "hash_ids" : "hash_runs";
  const Json& list = fields.raw(name);
  const bool runs = name == std::string_view("hash_runs");
  if (!list.is_array())
    return fields.wrong(name, runs ? "a list of [first, count]" : "a list of ids",
                        fields.has(name) ? shown(list) : "nothing");
  const std::uint64_t expected = request.prompt_tokens / block, ids = kIdsMax / block - 1;
  std::uint64_t count = 0;
  for (const Json& json : list) {
    const std::optional<WekaRun> run = json.is_array() == runs ? run_of(json) : std::nullopt;
    if (!run || run->count == 0 || run->first >= ids || run->count > ids - run->first)
      return fields.wrong(name, fmt::format("{} below {}", runs ? "[first, count] of ids" : "ids", ids),
                          shown(json));
    count += run->count;
    if (count > expected) break;
    std::vector<WekaRun>& all = request.blocks;
    if (!all.empty() && all.back().first + all.back().count == run->first) {
      all.back().count += run->count;
    } else {
      all.push_back(*run);
    }
  }
  if (count != expected)
    fields.wrong(name,
                 fmt::format("{} ids, one for each whole block of {} of {} tokens", expected, block,
                             request.prompt_tokens),
                 count > expected ? "more" : std::to_string(count));
}

// The blocks of a session's first prompt that hold the tools and the system's text. A later prompt has the
// same text only where it has the same block at the same place. All blocks of a run do or none, up to where
// one of the two runs ends, so prompts are compared by runs. Head blocks 1-3 and 9-10, and a prompt 1-4, 10:
//
//   place    0   1   2   3   4
//   head     1   2   3 | 9   10
//   prompt   1   2   3   4 | 10       stretches: 1-3 (head), 4 (own), 10 (head)
class PromptHead {
 public:
  PromptHead(const std::vector<WekaRun>& first, std::uint64_t blocks) {
    std::uint64_t place = 0;
    for (const WekaRun& run : first) {
      if (place == blocks) break;
      runs_.push_back({place, {run.first, std::min(run.count, blocks - place)}});
      place += runs_.back().run.count;
    }
    blocks_ = place;
  }

  // Calls `take(place, run, is_head)` for each stretch of a prompt, at most one for each run of the head and
  // of the prompt. O(that + runs of the prompt * log runs of the head).
  template <class Take>
  void each_stretch(const std::vector<WekaRun>& prompt, const Take& take) const {
    std::uint64_t place = 0;
    for (WekaRun left : prompt) {
      auto mine = std::ranges::upper_bound(runs_, place, {}, &Placed::place);
      while (left.count > 0) {
        WekaRun part = left;
        bool is_head = false;
        if (place < blocks_) {
          const Placed& other = *std::prev(mine);
          if (mine != runs_.end()) ++mine;
          const std::uint64_t into = place - other.place;
          part.count = std::min(left.count, other.run.count - into);
          is_head = other.run.first + into == left.first;
        }
        take(place, part, is_head);
        place += part.count;
        left = {left.first + part.count, left.count - part.count};
      }
    }
  }

 private:
  struct Placed {
    std::uint64_t place = 0;
    WekaRun run;
  };
  std::vector<Placed> runs_;
  std::uint64_t blocks_ = 0;
};

std::uint64_t head_tokens(const WekaSession& session) {
  return std::uint64_t{session.tool_tokens} + session.system_tokens;
}

PromptHead head_of(const WekaSession& session) {
  const std::vector<WekaRun> none;
  return {session.requests.empty() ? none : session.requests.front().blocks,
          head_tokens(session) / session.block_tokens};
}

WekaRequest read_request(Fields& fields, std::uint32_t block, Nanos last) {
  WekaRequest request;
  request.at = read_time(fields, last);
  std::string type = "n";
  fields.read("type", type, {"n", "s"});
  request.streamed = type == "s";
  fields.require("in", request.prompt_tokens, 1, kTraceTokensMax);
  fields.require("out", request.reply_tokens, 0, kTraceTokensMax);
  request.think = read_optional(fields, "think_time");
  request.took = read_optional(fields, "api_time");
  read_blocks(fields, block, request);
  return request;
}

enum class Holds { kSubagents, kRequests };

// What the reader of a line knows of it and of its file.
struct Reading {
  const TracePlace& place;
  std::uint64_t& pieces;  // of the file so far, at least
  Status status;
};

void count_pieces(const PromptHead& head, const WekaRequest& request, Fields& fields, Reading& reading) {
  // One for what no id names, and one where the tools end.
  reading.pieces += 2;
  head.each_stretch(request.blocks, [&](std::uint64_t, const WekaRun&, bool) { ++reading.pieces; });
  if (reading.pieces <= kPiecesMax) return;
  const std::string expected = fmt::format(
      "at most {} runs in the file, each cut where a run of its session's first prompt ends", kPiecesMax);
  fields.wrong(fields.has("hash_ids") ? "hash_ids" : "hash_runs", expected, "more");
}

void read_session(Fields& fields, const std::string& path, Holds holds, WekaSession& session,
                  Reading& reading) {
  fields.read("tool_tokens", session.tool_tokens, 0, kTraceTokensMax);
  fields.read("system_tokens", session.system_tokens, 0, kTraceTokensMax);
  const Json& list = fields.raw("requests");
  if (!list.is_array())
    return fields.wrong("requests", "a list", fields.has("requests") ? list.type_name() : "nothing");
  Nanos last = 0;
  std::optional<PromptHead> head;
  for (std::size_t i = 0; i < list.size() && reading.status.ok(); ++i) {
    const std::string own = fmt::format("{}requests[{}]", path, i);
    Fields entry(list[i], reading.place.text(), own, reading.status);
    const bool is_subagent = entry.raw("type") == "subagent";
    if (!is_subagent || holds == Holds::kRequests) {
      session.requests.push_back(read_request(entry, session.block_tokens, last));
      last = session.requests.back().at;
      if (!head) head = head_of(session);
      count_pieces(*head, session.requests.back(), entry, reading);
      continue;
    }
    WekaSession& agent = session.subagents.emplace_back();
    agent.at = last = read_time(entry, last);
    agent.block_tokens = session.block_tokens;
    read_session(entry, own + ".", Holds::kRequests, agent, reading);
  }
}

// What a session's block ids are as contents. Consecutive ids are places of one content, one after another,
// so that a run of them is one piece.
class SessionContents {
 public:
  // `number`: which session it is, for the ids mean something in it alone.
  SessionContents(std::uint64_t number, const WekaSession& session)
      : own_(mix64(number + 1)), block_(session.block_tokens), first_(head_of(session)) {
    // The data's ids do not say that sessions have the same tools; those of equal lengths are taken as equal.
    const std::uint64_t tools = session.tool_tokens;
    tool_blocks_ = tools / block_;
    tools_ = mix64(mix64(tools) ^ 0x70015);
    system_ = mix64(mix64(tools) ^ mix64(head_tokens(session)) ^ 0x5e5);
  }

  // `request`: which of its session.
  std::vector<Piece> pieces_of(const WekaRequest& request, std::uint64_t number) const {
    std::vector<Piece> pieces;
    first_.each_stretch(request.blocks, [&](std::uint64_t place, const WekaRun& run, bool is_head) {
      if (!is_head) return add(own_, run, pieces);
      const std::uint64_t ours = place < tool_blocks_ ? std::min(run.count, tool_blocks_ - place) : 0;
      if (ours > 0) add(tools_, {place, ours}, pieces);
      if (ours < run.count) add(system_, {place + ours, run.count - ours}, pieces);
    });
    // No id names a block that is not whole.
    if (const std::uint32_t rest = request.prompt_tokens % block_; rest > 0)
      pieces.push_back({mix64(own_ ^ mix64(number + 1)), rest});
    return pieces;
  }

 private:
  // Blocks of a content; a run counts places in it.
  void add(std::uint64_t content, const WekaRun& run, std::vector<Piece>& pieces) const {
    const Piece piece{content, static_cast<std::uint32_t>(run.count * block_),
                      static_cast<std::uint32_t>(run.first * block_)};
    if (!pieces.empty() && pieces.back().content == content &&
        pieces.back().skip + pieces.back().tokens == piece.skip) {
      pieces.back().tokens += piece.tokens;
    } else {
      pieces.push_back(piece);
    }
  }

  std::uint64_t own_;
  std::uint32_t block_;
  PromptHead first_;
  std::uint64_t tool_blocks_ = 0;         // of the prompt's head; those of the system's text are behind them
  std::uint64_t tools_ = 0, system_ = 0;  // contents
};

// `begin`: when the session began; `first`: the number of its first request among those of its session.
Conversation conversation_of(const WekaSession& session, const SessionContents& contents, Nanos begin,
                             std::uint64_t& number) {
  Conversation talk;
  Nanos free_at = 0;  // when the last reply had ended
  for (const WekaRequest& request : session.requests) {
    Turn turn;
    turn.appends = false;
    turn.noted = begin + request.at;
    if (talk.turns.empty()) {
      turn.at = turn.noted;
    } else {
      turn.after = request.think.value_or(std::max<Nanos>(0, request.at - free_at));
    }
    turn.pieces = contents.pieces_of(request, number++);
    turn.reply_tokens = std::max(1u, request.reply_tokens);
    free_at = request.at + request.took.value_or(0);
    talk.turns.push_back(std::move(turn));
  }
  return talk;
}

}  // namespace

Result<std::vector<WekaSession>> parse_weka(const std::string& text, const std::string& name) {
  std::vector<WekaSession> sessions;
  std::uint64_t requests = 0, pieces = 0;
  const Status read = each_trace_line(text, name, [&](const TraceLine& line) -> Status {
    Reading reading{line.place(), pieces, {}};
    Fields fields(line.json(), line.place().text(), "", reading.status);
    WekaSession& session = sessions.emplace_back();
    fields.read("block_size", session.block_tokens, 1, 1u << 20);
    read_session(fields, "", Holds::kSubagents, session, reading);
    if (session.requests.empty()) fields.wrong("requests", "at least one request of its own", "none");
    LOCI_RETURN_IF_ERROR(reading.status);
    requests += session.requests.size();
    for (const WekaSession& agent : session.subagents) requests += agent.requests.size();
    if (requests <= kTraceRequestsMax) return {};
    return line.wrong("requests", fmt::format("at most {} in the file", kTraceRequestsMax), "more");
  });
  if (!read.ok()) return read;
  return sessions;
}

Trace trace_of_sessions(const std::vector<WekaSession>& sessions, const std::string& name, double rate,
                        std::uint64_t seed) {
  Trace trace;
  trace.name = name;
  Random random(seed);
  double seconds = 0;
  std::uint64_t agents = 0, silent = 0;
  for (std::size_t s = 0; s < sessions.size(); ++s) {
    const WekaSession& session = sessions[s];
    seconds += draw_exponential(random, 1 / rate);
    const Nanos begin = nanos(std::min(seconds, kTraceSecondsMax));
    std::uint64_t number = 0;
    trace.conversations.push_back(conversation_of(session, SessionContents(s, session), begin, number));
    for (const WekaSession& agent : session.subagents) {
      if (agent.requests.empty()) continue;
      ++agents;
      trace.conversations.push_back(
          conversation_of(agent, SessionContents(s, agent), begin + agent.at, number));
    }
    const auto is_silent = [](const WekaRequest& request) { return request.reply_tokens == 0; };
    silent += static_cast<std::uint64_t>(std::ranges::count_if(session.requests, is_silent));
    for (const WekaSession& agent : session.subagents)
      silent += static_cast<std::uint64_t>(std::ranges::count_if(agent.requests, is_silent));
  }
  trace.notes.push_back(
      fmt::format("{} sessions, which the data does not place in time, begin at random, {:g} a second; their "
                  "{} sub-agents are conversations of their own, which begin at the data's times after them",
                  sessions.size(), rate, agents));
  trace.notes.push_back(
      "sessions whose tools and system texts are equally long are taken to have the same; blocks of replies "
      "are not named, so the state of replies is not reused");
  if (silent > 0)
    trace.notes.push_back(fmt::format("{} requests had no reply; here it has one token", silent));
  return trace;
}

}  // namespace loci::sim
