// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/policy_traces.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "loci/base/random.h"
#include "loci/compute/backend.h"
#include "loci/sim/draws.h"
#include "loci/sim/packed_file.h"
#include "loci/sim/trace_readers.h"
#include "loci/sim/weka.h"

namespace loci::sim {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kMooncakeScale = 16;  // its blocks have 512 tokens
constexpr std::uint32_t kAgentIds = 16;       // its blocks have 64: so many are one of ours
constexpr std::uint32_t kAgentScale = 64 * kAgentIds / kBlockTokens;
constexpr Nanos kThinkMost = 600 * kNanosPerSecond;

// The lines of a file below the shared data, as JSON; at most `most`. Empty: it is not there.
std::vector<Json> read_lines(const std::string& name, std::size_t most) {
  const std::optional<std::string> path = shared_data(name);
  if (!path) return {};
  PackedFile in = PackedFile::open(*path).value();
  std::vector<Json> lines;
  while (lines.size() < most) {
    const std::optional<std::string> line = in.line().value();
    if (!line) break;
    Json json = Json::parse(*line, nullptr, false);
    if (json.is_object()) lines.push_back(std::move(json));
  }
  return lines;
}

Nanos drawn_time(Random& random, Nanos mean) {
  return static_cast<Nanos>(draw_exponential(random, static_cast<double>(mean)));
}

std::uint32_t scaled_tokens(std::uint64_t count, std::uint32_t scale) {
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(count / scale, 1));
}

// Arrivals a second apart in the mean; stretched() makes of it what is wanted.
void place_sessions(std::vector<Conversation>& sessions, Random& random) {
  Nanos at = 0;
  for (Conversation& session : sessions) session.turns.front().at = at += drawn_time(random, kNanosPerSecond);
}

Conversation agent_session(const WekaSession& row, std::uint64_t number, std::uint32_t turns) {
  Conversation session;
  const std::uint64_t shared = row.tool_tokens + row.system_tokens;
  for (const WekaRequest& request : row.requests) {
    if (session.turns.size() == turns) break;
    std::vector<std::uint64_t> ids;
    for (const WekaRun& run : request.blocks) {
      for (std::uint64_t i = 0; i < run.count; ++i) ids.push_back(run.first + i);
    }
    Turn turn;
    turn.appends = false;
    turn.after = std::min(request.think.value_or(0), kThinkMost);
    turn.reply_tokens = scaled_tokens(request.reply_tokens, kAgentScale);
    for (std::size_t i = 0; i < ids.size(); i += kAgentIds) {
      const bool head = (i + kAgentIds) * 64 <= shared;  // tools and system prompt: every session's
      std::uint64_t content = mix64(head ? shared * 1'000 + i : number * 1'000'003 + 7);
      for (std::size_t j = i; !head && j < std::min<std::size_t>(i + kAgentIds, ids.size()); ++j)
        content = mix64(content ^ ids[j]);
      const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(kAgentIds, ids.size() - i));
      turn.pieces.push_back({content, std::max(1u, count * kBlockTokens / kAgentIds)});
    }
    if (!turn.pieces.empty()) session.turns.push_back(std::move(turn));
  }
  return session;
}

// The text of a file below the shared data; absent: it is not there.
std::optional<std::string> shared_text(const std::string& name) {
  const std::optional<std::string> path = shared_data(name);
  return path ? std::optional(read_text(*path).value()) : std::nullopt;
}

}  // namespace

std::optional<ScaledTrace> chat_trace(std::uint32_t sessions, Nanos think, std::uint64_t seed) {
  constexpr std::uint32_t kSystem = 64, kTemplate = 8, kDocumentLeast = 250, kDocumentMost = 1750;
  Random random(seed);
  ScaledTrace out{.trace = {.name = "chat"}};
  for (const Json& row : read_lines("mt-bench-101/dialogues.jsonl.gz", sessions)) {
    Conversation session;
    Turn turn;
    turn.pieces = {{mix64(seed), kSystem},
                   {random.next(), kDocumentLeast + static_cast<std::uint32_t>(
                                                        random.below(kDocumentMost - kDocumentLeast))}};
    for (const Json& message : row["messages"]) {
      const auto tokens = scaled_tokens(message["content"].get_ref<const std::string&>().size(), 4);
      if (message["role"] == "user") {
        turn.pieces.push_back({random.next(), tokens + kTemplate});
        continue;
      }
      turn.reply_tokens = tokens;
      session.turns.push_back(std::exchange(turn, {.after = drawn_time(random, think)}));
    }
    out.trace.conversations.push_back(std::move(session));
  }
  if (out.trace.conversations.empty()) return std::nullopt;
  place_sessions(out.trace.conversations, random);
  return out;
}

std::optional<ScaledTrace> mooncake_trace(std::uint32_t requests) {
  const std::optional<std::string> text = shared_text("mooncake/conversation_trace.jsonl.gz");
  if (!text) return std::nullopt;
  ScaledTrace out{.trace = parse_mooncake(*text, "mooncake").value(), .scale = kMooncakeScale};
  keep_first(out.trace, requests);
  for (Conversation& conversation : out.trace.conversations) {
    Turn& turn = conversation.turns.front();
    turn.reply_tokens = scaled_tokens(turn.reply_tokens, kMooncakeScale);
    std::uint32_t left = scaled_tokens(tokens_of(turn.pieces), kMooncakeScale);
    for (Piece& piece : turn.pieces) {
      piece.tokens = std::min(left, kBlockTokens);
      left -= piece.tokens;
    }
    std::erase_if(turn.pieces, [](const Piece& piece) { return piece.tokens == 0; });
  }
  return out;
}

std::optional<ScaledTrace> agent_trace(std::uint32_t sessions, std::uint32_t turns, std::uint64_t seed) {
  const std::optional<std::string> text = shared_text("weka-agentic-coding/sessions.jsonl.gz");
  if (!text) return std::nullopt;
  Random random(seed);
  ScaledTrace out{.trace = {.name = "agent"}, .scale = kAgentScale};
  const std::vector<WekaSession> rows = parse_weka(*text, "agent").value();
  for (const WekaSession& row : rows) {
    if (out.trace.conversations.size() == sessions) break;
    if (std::ranges::any_of(row.requests, &WekaRequest::streamed) || row.entries() < 5) continue;
    Conversation session = agent_session(row, out.trace.conversations.size() + 1, turns);
    if (!session.turns.empty()) out.trace.conversations.push_back(std::move(session));
  }
  place_sessions(out.trace.conversations, random);
  return out;
}

CostCurves scaled(const CostCurves& curves, std::uint32_t scale) {
  const CostModel model(curves);
  CostCurves out = curves;
  out.token *= scale;
  out.attention.clear();
  for (std::uint32_t before = 1; before <= (1u << 17); before *= 2)
    out.attention.push_back(model.attention(before * scale) * scale);
  return out;
}

}  // namespace loci::sim
