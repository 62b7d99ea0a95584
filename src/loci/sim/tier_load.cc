// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/tier_load.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/random.h"
#include "loci/policy/cost_model.h"

namespace loci {
namespace {

constexpr std::uint32_t kWords = 50'000;
constexpr Nanos kDecodes = 8;  // that share a pass, in the mean

void append(std::vector<TokenId>& tokens, const TracePiece& piece) {
  for (std::uint32_t i = 0; i < piece.tokens; ++i) {
    tokens.emplace_back(static_cast<std::uint32_t>(random_word(piece.content, i) % kWords));
  }
}

TokenId sample_of(RequestId request, std::size_t index) {
  return TokenId(static_cast<std::uint32_t>(random_word(request.value + 0x5eed, index) % kWords));
}

// Prefixes in whole blocks that were there once.
class Seen {
 public:
  // The tokens of the longest prefix that was seen; the last token is computed in any case.
  std::uint32_t prefix(const std::vector<TokenId>& tokens) const {
    std::uint32_t found = 0;
    walk(tokens, [&](std::uint64_t hash, std::uint32_t end) {
      if (end >= tokens.size() || !hashes_.contains(hash)) return false;
      found = end;
      return true;
    });
    return found;
  }
  void add(const std::vector<TokenId>& tokens) {
    walk(tokens, [&](std::uint64_t hash, std::uint32_t) {
      hashes_.insert(hash);
      return true;
    });
  }
  std::uint64_t size() const { return hashes_.size(); }

 private:
  template <class Visit>
  static void walk(const std::vector<TokenId>& tokens, const Visit& visit) {
    std::uint64_t hash = 1;
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
      hash = mix64(hash ^ (tokens[i].value + 1));
      if ((i + 1) % kBlockTokens == 0 && !visit(hash, i + 1)) return;
    }
  }
  std::unordered_set<std::uint64_t> hashes_;
};

// One transfer at a time.
struct Link {
  Nanos free_at = 0;
  // Ends of transfers that are asked for together: the latency is paid once.
  Nanos move(Nanos now, const LinkCost& cost, std::uint64_t bytes, bool first) {
    const auto moving = static_cast<Nanos>(static_cast<unsigned __int128>(bytes) * kNanosPerSecond /
                                           std::max<std::uint64_t>(cost.bytes_per_second, 1));
    free_at = std::max(free_at, now) + (first ? cost.latency : 0) + moving;
    return free_at;
  }
};

class TierLoad {
 public:
  TierLoad(const Trace& trace, const CoreConfig& config)
      : trace_(trace), config_(config), costs_(config.costs), core_(Core::make(config).value()) {}

  TierLoadReport run() {
    for (std::size_t s = 0; s < trace_.sessions.size(); ++s) {
      sessions_.emplace_back();
      schedule_turn(s, trace_.sessions[s].at);
    }
    step(Recovered{.last = true});
    while (!events_.empty()) {
      const Pending next = events_.top();
      events_.pop();
      now_ = std::get<0>(next);
      take(next);
    }
    report_.duration = now_;
    report_.stats = core_.stats();
    return std::move(report_);
  }

 private:
  enum class Kind : std::uint8_t { kMoves, kPass, kTick, kArrival };
  using Pending = std::tuple<Nanos, Kind, std::uint64_t>;  // when, what, of which (or its number)

  struct Session {
    std::size_t next_turn = 0;
    std::vector<TokenId> tokens;  // the last prompt with its reply
  };
  struct Request {
    std::size_t session = 0;
    Nanos arrived = 0;
    std::size_t number = 0;
    std::size_t sampled = 0;
  };

  void schedule_turn(std::size_t session, Nanos from) {
    const Session& of = sessions_[session];
    const std::vector<TraceTurn>& turns = trace_.sessions[session].turns;
    if (of.next_turn < turns.size())
      events_.emplace(from + turns[of.next_turn].after, Kind::kArrival, session);
  }

  void take(const Pending& event) {
    const std::uint64_t which = std::get<2>(event);
    switch (std::get<1>(event)) {
      case Kind::kArrival: arrive(which); break;
      case Kind::kPass: step(*std::exchange(pass_, std::nullopt)); break;
      case Kind::kTick:
        if (which == ticks_) step(Tick{});
        break;
      case Kind::kMoves: {
        MovesEnded ended;
        ended.moves.push_back({OperationId(which), MoveResult::kDone, 0});
        end_move(which);
        while (!events_.empty() && std::get<0>(events_.top()) == now_ &&
               std::get<1>(events_.top()) == Kind::kMoves) {
          ended.moves.push_back({OperationId(std::get<2>(events_.top())), MoveResult::kDone, 0});
          end_move(std::get<2>(events_.top()));
          events_.pop();
        }
        step(ended);
        break;
      }
    }
  }

  void arrive(std::size_t s) {
    Session& session = sessions_[s];
    const TraceTurn& turn = trace_.sessions[s].turns[session.next_turn++];
    if (!turn.appends) session.tokens.clear();
    for (const TracePiece& piece : turn.pieces) append(session.tokens, piece);
    const RequestId id(++requests_made_);
    requests_[id] = {s, now_, report_.first_token.size(), 0};
    report_.first_token.push_back(kNever);
    report_.reusable_tokens += seen_.prefix(session.tokens);
    report_.prompt_tokens += session.tokens.size();
    Arrival arrival;
    arrival.request = id;
    arrival.group = "all";
    arrival.prompt = session.tokens;
    arrival.max_new_tokens = turn.output_tokens;
    step(arrival);
  }

  void step(const Event& event) {
    Plan plan = core_.step(now_, event);
    start_moves(plan);
    if (plan.pass) start_pass(plan);
    for (const Output& output : plan.outputs) {
      std::visit([this](const auto& out) { see(out); }, output);
    }
    ++ticks_;
    if (plan.wake_at != kNever) events_.emplace(std::max(plan.wake_at, now_), Kind::kTick, ticks_);
  }

  void start_moves(const Plan& plan) {
    std::array<bool, 4> used{};
    for (const Move& move : plan.moves) {
      const bool load = move.to < move.from;
      const Tier far = std::max(move.from, move.to);
      const std::size_t way = (far == Tier::kDisk ? 2 : 0) + (load ? 0 : 1);
      const CostCurves& curves = config_.costs;
      const LinkCost* const cost[] = {&curves.host_load, &curves.host_save, &curves.disk_read,
                                      &curves.disk_write};
      std::uint64_t bytes = 0;
      for (const MovePart& part : move.parts) bytes += config_.groups[part.group].block_bytes;
      const Nanos ends = links_[way].move(now_, *cost[way], bytes, !std::exchange(used[way], true));
      events_.emplace(ends, Kind::kMoves, move.id.value);
      if (move.to != Tier::kDevice) continue;
      for (const MovePart& part : move.parts) arrives_[{part.group, part.to}] = ends;
      loading_[move.id.value] = move.parts;
    }
  }

  void end_move(std::uint64_t move) {
    const auto found = loading_.find(move);
    if (found == loading_.end()) return;
    for (const MovePart& part : found->second) arrives_.erase({part.group, part.to});
    loading_.erase(found);
  }

  void start_pass(const Plan& plan) {
    std::uint32_t rows = 0;
    Nanos attention = 0, arrives = 0;
    for (const Span& span : plan.pass->spans) {
      rows += static_cast<std::uint32_t>(span.tokens.size());
      for (std::uint32_t i = 0; i < span.tokens.size(); ++i) attention += costs_.attention(span.position + i);
      if (arrives_.empty()) continue;
      for (std::uint32_t group = 0; group < span.tables.size(); ++group) {
        for (const SlotId slot : span.tables[group].blocks) {
          const auto found = arrives_.find({group, slot});
          if (found != arrives_.end()) arrives = std::max(arrives, found->second);
        }
      }
    }
    const Nanos lasts = costs_.pass(rows, 0) + attention;
    // The last layer is computed once it has arrived.
    const Nanos ends = std::max(now_ + lasts, arrives + lasts / std::max(config_.layers, 1u));
    events_.emplace(ends, Kind::kPass, 0);
    PassDone& done = pass_.emplace();
    done.pass = plan.pass->id;
    for (const SpanPlan& span : plan.spans) {
      SpanOutcome outcome;
      if (span.sample) outcome.sample = sample_of(span.request, requests_.at(span.request).sampled);
      done.spans.push_back(outcome);
    }
  }

  void see(const Started& started) {
    report_.from[0] += started.sources.device;
    report_.from[1] += started.sources.host;
    report_.from[2] += started.sources.disk;
  }
  void see(const TokenSampled& sampled) {
    Request& request = requests_.at(sampled.request);
    Nanos& first = report_.first_token[request.number];
    if (first == kNever) first = now_ - request.arrived;
    ++request.sampled;
    sessions_[request.session].tokens.push_back(sampled.token);
  }
  void see(const Finished& finished) { end(finished.request); }
  void see(const Rejected& rejected) {
    ++report_.refused;
    end(rejected.request);
  }
  void end(RequestId id) {
    const std::size_t session = requests_.at(id).session;
    requests_.erase(id);
    seen_.add(sessions_[session].tokens);
    schedule_turn(session, now_);
  }

  const Trace& trace_;
  CoreConfig config_;
  CostModel costs_;
  Core core_;
  Nanos now_ = 0;
  std::uint64_t requests_made_ = 0;
  std::uint64_t ticks_ = 0;
  std::priority_queue<Pending, std::vector<Pending>, std::greater<>> events_;
  std::vector<Session> sessions_;
  std::map<RequestId, Request> requests_;
  std::optional<PassDone> pass_;
  std::array<Link, 4> links_;  // host load, host save, disk read, disk write
  std::map<std::pair<std::uint32_t, SlotId>, Nanos> arrives_;
  std::map<std::uint64_t, std::vector<MovePart>> loading_;
  Seen seen_;
  TierLoadReport report_;
};

}  // namespace

TraceSize size_of(const Trace& trace, const CostModel& costs) {
  TraceSize size;
  Seen seen;
  for (const TraceSession& session : trace.sessions) {
    std::vector<TokenId> tokens;
    Nanos at = session.at;
    for (const TraceTurn& turn : session.turns) {
      if (!turn.appends) tokens.clear();
      for (const TracePiece& piece : turn.pieces) append(tokens, piece);
      const auto prompt = static_cast<std::uint32_t>(tokens.size());
      ++size.requests;
      size.prompt_tokens += prompt;
      size.output_tokens += turn.output_tokens;
      const std::uint32_t reusable = seen.prefix(tokens);
      size.reusable_tokens += reusable;
      at += turn.after;
      size.compute += costs.compute(reusable, prompt - reusable) +
                      turn.output_tokens * std::max(costs.curves().token, costs.curves().pass / kDecodes);
      for (std::uint32_t i = 0; i < turn.output_tokens; ++i)
        tokens.push_back(sample_of(RequestId(size.requests), i));
      size.longest_tokens = std::max(size.longest_tokens, prompt + turn.output_tokens);
      seen.add(tokens);
    }
    size.lasts = std::max(size.lasts, at);
  }
  size.distinct_blocks = seen.size();
  return size;
}

Trace stretched(Trace trace, double times) {
  const auto scale = [times](Nanos& time) { time = static_cast<Nanos>(static_cast<double>(time) * times); };
  for (TraceSession& session : trace.sessions) {
    scale(session.at);
    for (TraceTurn& turn : session.turns) scale(turn.after);
  }
  return trace;
}

Nanos TierLoadReport::mean_first_token() const {
  Nanos sum = 0;
  std::int64_t count = 0;
  for (const Nanos time : first_token) {
    if (time == kNever) continue;
    sum += time;
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

Nanos TierLoadReport::first_token_percentile(std::uint32_t percent) const {
  std::vector<Nanos> times = first_token;
  if (times.empty()) return 0;
  const std::size_t at = (times.size() * percent + 99) / 100 - 1;
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(at), times.end());
  return times[at];
}

TierLoadReport run_tier_load(const Trace& trace, const CoreConfig& config) {
  return TierLoad(trace, config).run();
}

}  // namespace loci
