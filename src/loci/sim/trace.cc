// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "loci/base/random.h"

namespace loci::sim {

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

std::vector<bool> sharing_first_turns(const Trace& trace) {
  const auto first_of = [](const Conversation& talk) {
    std::uint64_t hash = 1;
    if (talk.turns.empty()) return hash;
    for (const Piece& piece : talk.turns.front().pieces)
      hash = mix64(hash ^ mix64(piece.content ^ mix64(std::uint64_t{piece.skip} << 32 | piece.tokens)));
    return hash;
  };
  std::unordered_map<std::uint64_t, std::uint32_t> counts;  // never iterated
  for (const Conversation& talk : trace.conversations) ++counts[first_of(talk)];
  std::vector<bool> shares;
  shares.reserve(trace.conversations.size());
  for (const Conversation& talk : trace.conversations) shares.push_back(counts[first_of(talk)] > 1);
  return shares;
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
  constexpr double kMost = kTraceMillisMax * kNanosPerMilli;
  const auto wrong = [&](std::string_view expected, double found) {
    return invalid_argument(fmt::format("{}: trace.time_scale: expected {} {:.3g} ms", trace.name, expected,
                                        found / kNanosPerMilli),
                            "trace.time_scale");
  };
  for (const Conversation& conversation : trace.conversations) {
    double due = 0;
    for (const Turn& turn : conversation.turns) {
      const double noted = static_cast<double>(std::max<Nanos>(turn.noted, 0)) * scale;
      due = std::max(static_cast<double>(turn.at) * scale, due + static_cast<double>(turn.after) * scale);
      const double leaves = static_cast<double>(std::max<Nanos>(turn.cancel_after, 0)) * scale;
      if (std::max(due, noted) > kMost)
        return wrong("turns due within 10^12 ms of the begin, found one at", std::max(due, noted));
      if (leaves > kMost)
        return wrong("clients that leave within 10^12 ms of their request, found one after", leaves);
    }
  }
  const auto apply = [scale](Nanos& time) { time = static_cast<Nanos>(static_cast<double>(time) * scale); };
  for (Conversation& conversation : trace.conversations) {
    for (Turn& turn : conversation.turns) {
      apply(turn.at);
      apply(turn.after);
      if (turn.noted >= 0) apply(turn.noted);
      if (turn.cancel_after >= 0) apply(turn.cancel_after);
    }
  }
  return {};
}

std::uint64_t Trace::requests() const {
  std::uint64_t count = 0;
  for (const Conversation& conversation : conversations) count += conversation.turns.size();
  return count;
}

}  // namespace loci::sim
