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

WekaRequest read_request(Fields fields, std::uint32_t block, Nanos last) {
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

void read_session(Fields& fields, const TracePlace& place, const std::string& path, Holds holds,
                  WekaSession& session, Status& status) {
  fields.read("tool_tokens", session.tool_tokens, 0, kTraceTokensMax);
  fields.read("system_tokens", session.system_tokens, 0, kTraceTokensMax);
  const Json& list = fields.raw("requests");
  if (!list.is_array())
    return fields.wrong("requests", "a list", fields.has("requests") ? list.type_name() : "nothing");
  Nanos last = 0;
  for (std::size_t i = 0; i < list.size() && status.ok(); ++i) {
    const std::string own = fmt::format("{}requests[{}]", path, i);
    Fields entry(list[i], place.text(), own, status);
    const bool is_subagent = entry.raw("type") == "subagent";
    if (!is_subagent || holds == Holds::kRequests) {
      session.requests.push_back(read_request(std::move(entry), session.block_tokens, last));
      last = session.requests.back().at;
      continue;
    }
    WekaSession& agent = session.subagents.emplace_back();
    agent.at = last = read_time(entry, last);
    agent.block_tokens = session.block_tokens;
    read_session(entry, place, own + ".", Holds::kRequests, agent, status);
  }
}

// What a session's block ids are as contents. Consecutive ids are places of one content, one after another,
// so that a run of them is one piece.
class SessionContents {
 public:
  // `number`: which session it is, for the ids mean something in it alone.
  SessionContents(std::uint64_t number, const WekaSession& session)
      : own_(mix64(number + 1)), block_(session.block_tokens) {
    // The data's ids do not say that sessions have the same tools; those of equal lengths are taken as equal.
    const std::uint64_t tools = session.tool_tokens, head = tools + session.system_tokens;
    tools_ = {mix64(mix64(tools) ^ 0x70015), tools / block_};
    head_ = {mix64(mix64(tools) ^ mix64(head) ^ 0x5e5), head / block_};
    if (!session.requests.empty()) first_ = ids_of(session.requests.front(), head_.blocks);
  }

  // `request`: which of its session.
  std::vector<Piece> pieces_of(const WekaRequest& request, std::uint64_t number) const {
    std::vector<Piece> pieces;
    std::uint64_t place = 0;
    for (const WekaRun& run : request.blocks) {
      for (std::uint64_t i = 0; i < run.count; ++i) add(block_at(place++, run.first + i), pieces);
    }
    // No id names a block that is not whole.
    if (const std::uint32_t rest = request.prompt_tokens % block_; rest > 0)
      pieces.push_back({mix64(own_ ^ mix64(number + 1)), rest});
    return pieces;
  }

 private:
  struct Shared {
    std::uint64_t content = 0;
    std::uint64_t blocks = 0;  // of the prompt's head, up to its end
  };

  static std::vector<std::uint64_t> ids_of(const WekaRequest& request, std::uint64_t most) {
    std::vector<std::uint64_t> ids;
    for (const WekaRun& run : request.blocks) {
      for (std::uint64_t i = 0; i < run.count && ids.size() < most; ++i) ids.push_back(run.first + i);
    }
    return ids;
  }
  // A block is of the tools or of the system's text if it is where the session's first prompt has them, and
  // is the same block.
  Piece block_at(std::uint64_t place, std::uint64_t id) const {
    const bool is_head = place < first_.size() && first_[place] == id;
    const std::uint64_t content = !is_head ? own_ : place < tools_.blocks ? tools_.content : head_.content;
    return {content, block_, static_cast<std::uint32_t>((is_head ? place : id) * block_)};
  }
  static void add(const Piece& block, std::vector<Piece>& pieces) {
    if (!pieces.empty() && pieces.back().content == block.content &&
        pieces.back().skip + pieces.back().tokens == block.skip) {
      pieces.back().tokens += block.tokens;
    } else {
      pieces.push_back(block);
    }
  }

  std::uint64_t own_;
  std::uint32_t block_;
  Shared tools_, head_;
  std::vector<std::uint64_t> first_;  // ids of the first prompt's head
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
  std::uint64_t requests = 0;
  const Status read = each_trace_line(text, name, [&](const TraceLine& line) -> Status {
    Status status;
    Fields fields(line.json(), line.place().text(), "", status);
    WekaSession& session = sessions.emplace_back();
    fields.read("block_size", session.block_tokens, 1, 1u << 20);
    read_session(fields, line.place(), "", Holds::kSubagents, session, status);
    if (session.requests.empty()) fields.wrong("requests", "at least one request of its own", "none");
    LOCI_RETURN_IF_ERROR(status);
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
