// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/policy_traces.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "loci/base/random.h"
#include "loci/compute/backend.h"
#include "loci/sim/packed_file.h"

namespace loci::sim {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kMooncakeScale = 16;  // its blocks have 512 tokens
constexpr std::uint32_t kAgentIds = 16;       // its blocks have 64: so many are one of ours
constexpr std::uint32_t kAgentScale = 64 * kAgentIds / kBlockTokens;

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

Nanos exponential(Random& random, Nanos mean) {
  return static_cast<Nanos>(-std::log(1 - random.unit()) * static_cast<double>(mean));
}

std::uint32_t tokens_of(std::uint64_t count, std::uint32_t scale) {
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(count / scale, 1));
}

// Arrivals a second apart in the mean; stretched() makes of it what is wanted.
void place_sessions(std::vector<Conversation>& sessions, Random& random) {
  Nanos at = 0;
  for (Conversation& session : sessions)
    session.turns.front().at = at += exponential(random, kNanosPerSecond);
}

Conversation agent_session(const Json& row, std::uint64_t number, std::uint32_t turns) {
  Conversation session;
  const std::uint64_t shared = row.value("tool_tokens", 0u) + row.value("system_tokens", 0u);
  for (const Json& request : row["requests"]) {
    if (session.turns.size() == turns) break;
    if (request.value("type", "") == "subagent") continue;
    std::vector<std::uint64_t> ids;
    for (const Json& run : request["hash_runs"]) {
      for (std::uint64_t i = 0; i < run[1].get<std::uint64_t>(); ++i)
        ids.push_back(run[0].get<std::uint64_t>() + i);
    }
    Turn turn;
    turn.appends = false;
    turn.after = static_cast<Nanos>(std::min(request.value("think_time", 0.0), 600.0) * 1e9);
    turn.reply_tokens = tokens_of(request.value("out", 1u), kAgentScale);
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
      const auto tokens = tokens_of(message["content"].get_ref<const std::string&>().size(), 4);
      if (message["role"] == "user") {
        turn.pieces.push_back({random.next(), tokens + kTemplate});
        continue;
      }
      turn.reply_tokens = tokens;
      session.turns.push_back(std::exchange(turn, {.after = exponential(random, think)}));
    }
    out.trace.conversations.push_back(std::move(session));
  }
  if (out.trace.conversations.empty()) return std::nullopt;
  place_sessions(out.trace.conversations, random);
  return out;
}

std::optional<ScaledTrace> mooncake_trace(std::uint32_t requests) {
  ScaledTrace out{.trace = {.name = "mooncake"}, .scale = kMooncakeScale};
  for (const Json& row : read_lines("mooncake/conversation_trace.jsonl.gz", requests)) {
    Turn turn;
    turn.appends = false;
    turn.reply_tokens = tokens_of(row["output_length"].get<std::uint64_t>(), kMooncakeScale);
    std::uint32_t left = tokens_of(row["input_length"].get<std::uint64_t>(), kMooncakeScale);
    for (const Json& id : row["hash_ids"]) {
      if (left == 0) break;
      const std::uint32_t tokens = std::min(left, kBlockTokens);
      turn.pieces.push_back({id.get<std::uint64_t>(), tokens});
      left -= tokens;
    }
    turn.at = row["timestamp"].get<Nanos>() * kNanosPerMilli;
    out.trace.conversations.push_back({{std::move(turn)}});
  }
  if (out.trace.conversations.empty()) return std::nullopt;
  return out;
}

std::optional<ScaledTrace> agent_trace(std::uint32_t sessions, std::uint32_t turns, std::uint64_t seed) {
  Random random(seed);
  ScaledTrace out{.trace = {.name = "agent"}, .scale = kAgentScale};
  for (const Json& row : read_lines("weka-agentic-coding/sessions.jsonl.gz", 517)) {
    if (out.trace.conversations.size() == sessions) break;
    const Json& all = row["requests"];
    const bool clean =
        std::none_of(all.begin(), all.end(), [](const Json& r) { return r.value("type", "") == "s"; });
    if (!clean || all.size() < 5) continue;
    Conversation session = agent_session(row, out.trace.conversations.size() + 1, turns);
    if (!session.turns.empty()) out.trace.conversations.push_back(std::move(session));
  }
  if (out.trace.conversations.empty()) return std::nullopt;
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
