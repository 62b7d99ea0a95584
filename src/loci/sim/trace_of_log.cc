// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/trace_of_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "loci/base/random.h"
#include "loci/engine/log/event_log.h"
#include "loci/memory/partial_block.h"
#include "loci/sim/said_tokens.h"

namespace loci::sim {
namespace {

constexpr std::uint64_t kRuns = 0x10ca1;  // seeds the contents' names

class LogReader {
 public:
  void see(const LoggedStep& step, const Plan& plan) {
    now_ = step.now;
    if (const auto* arrival = std::get_if<Arrival>(&step.event)) see(*arrival);
    if (const auto* cancel = std::get_if<Cancel>(&step.event)) see(*cancel);
    if (const auto* withdrawn = std::get_if<Withdraw>(&step.event)) public_.erase(withdrawn->prefix);
    for (const Output& output : plan.outputs) {
      std::visit([this](const auto& out) { see(out); }, output);
    }
  }

  Result<Trace> take(const std::string& path) {
    for (auto& [id, live] : live_) end(live);
    std::erase_if(trace_.conversations, [](const Conversation& one) { return one.turns.empty(); });
    const std::uint64_t requests = trace_.requests();
    if (requests == 0)
      return invalid_argument(fmt::format("{}: expected at least one request, found none", path), "file");
    if (requests > kTraceRequestsMax || longest_ > kTraceTokensMax) {
      return invalid_argument(
          fmt::format("{}: expected at most {} requests of at most {} tokens, found {} of up to {}", path,
                      kTraceRequestsMax, kTraceTokensMax, requests, longest_),
          "file");
    }
    for (Conversation& talk : trace_.conversations) {
      for (Turn& turn : talk.turns) {
        for (Piece& piece : turn.pieces) piece.content = mix64(kRuns ^ piece.content);
        for (Piece& piece : turn.reply) piece.content = mix64(kRuns ^ piece.content);
      }
    }
    trace_.name = path;
    const auto note = [this](std::uint64_t count, const char* what) {
      if (count > 0) trace_.notes.push_back(fmt::format("{} {}", count, what));
    };
    note(refused_, "requests were refused, and are not in the trace");
    note(publics_, "prefixes were made public: they are computed with the first prompt that begins so");
    note(live_.size(), "requests had no end yet: their replies are as long as they were");
    note(cut_, "histories were cut to fit the context: `engine.overflow` says what becomes of them");
    return std::move(trace_);
  }

 private:
  struct Where {
    std::size_t conversation = 0;
    std::size_t turn = 0;
  };
  // A request that has ended, and that no other one has gone on from.
  struct Ended {
    std::size_t conversation = 0;
    Nanos at = 0;
    std::uint64_t prompt_tokens = 0;
    SaidTokens::Place place;  // where its prompt ends
  };
  struct Live {
    Where where;
    Nanos arrived = 0;
    std::uint32_t most = 1;   // tokens that were asked for
    Nanos left = -1;          // when the client did, before anything was said
    SaidTokens::Place place;  // where its prompt ends
    std::vector<TokenId> said;
    std::optional<Ended> goes_on_from = std::nullopt;
  };

  Turn& turn_of(const Where& where) { return trace_.conversations[where.conversation].turns[where.turn]; }

  void see(const Arrival& arrival) {
    if (arrival.scope == SharingScope::kPublic) {
      ++publics_;
      public_[arrival.request] = arrival.prompt;
      return;
    }
    if (!begin_) begin_ = now_;
    cut_ += arrival.dropped.empty() ? 0 : 1;
    longest_ = std::max(longest_, arrival.prompt.size());
    Turn turn;
    turn.appends = false;
    turn.at = turn.noted = now_ - *begin_;
    const SaidTokens::Way way = say(arrival, turn.pieces);
    Live live;
    live.arrived = now_;
    live.most = std::clamp(arrival.max_new_tokens, 1u, kTraceTokensMax);
    live.place = way.end;
    live.where.conversation = trace_.conversations.size();
    live.goes_on_from = last_of(turn.pieces, way.known, arrival.prompt.size());
    if (live.goes_on_from) {
      live.where.conversation = live.goes_on_from->conversation;
      turn.at = 0;
      turn.after = now_ - live.goes_on_from->at;
    } else {
      trace_.conversations.emplace_back();
    }
    std::vector<Turn>& turns = trace_.conversations[live.where.conversation].turns;
    live.where.turn = turns.size();
    turns.push_back(std::move(turn));
    live_.insert_or_assign(arrival.request, std::move(live));
  }

  // What is public is shared by all, in whole blocks; what is behind it by those of one tenant and salt.
  SaidTokens::Way say(const Arrival& arrival, std::vector<Piece>& pieces) {
    const std::span<const TokenId> prompt = arrival.prompt;
    std::size_t open = 0;
    for (const auto& [id, prefix] : public_) {
      const auto same = static_cast<std::size_t>(
          std::mismatch(prefix.begin(), prefix.end(), prompt.begin(), prompt.end()).first - prefix.begin());
      if (same == prefix.size()) open = std::max(open, same / kBlockTokens * kBlockTokens);
    }
    std::string name = "t" + sharing_of(arrival);
    if (open > 0) {
      const SaidTokens::Way way = said_.say(said_.root("p"), prompt.first(open), pieces);
      name += fmt::format("\n\n{}:{}", way.end.run, way.end.offset);
    }
    const std::size_t before = pieces.size();
    SaidTokens::Way way = said_.say(said_.root(name), prompt.subspan(open), pieces);
    way.known = std::max(way.known, before);
    return way;
  }

  // The request that this one goes on from: the longest prompt that is all of its beginning.
  std::optional<Ended> last_of(const std::vector<Piece>& pieces, std::size_t known, std::size_t prompt) {
    std::optional<Ended> found;
    for (std::size_t i = 0; i < known; ++i) {
      const auto run = ended_.find(pieces[i].content);
      if (run == ended_.end()) continue;
      for (const auto& [offset, ended] : run->second) {
        if (offset > pieces[i].skip + pieces[i].tokens) break;
        if (ended.prompt_tokens < prompt) found = ended;
      }
    }
    if (found) ended_[found->place.run].erase(found->place.offset);
    return found;
  }
  void add(const Ended& ended) { ended_[ended.place.run].insert_or_assign(ended.place.offset, ended); }

  void see(const Cancel& cancel) {
    const auto at = live_.find(cancel.request);
    if (at != live_.end() && at->second.said.empty()) at->second.left = now_;
  }
  void see(const Started&) {}
  void see(const Restored&) {}
  void see(const TokenSampled& sampled) {
    if (const auto at = live_.find(sampled.request); at != live_.end())
      at->second.said.push_back(sampled.token);
  }
  void see(const Rejected& rejected) {
    public_.erase(rejected.request);
    const auto at = live_.find(rejected.request);
    if (at == live_.end()) return;
    // Nobody can have gone on from it, so its turn is the last one. Its client may ask again.
    trace_.conversations[at->second.where.conversation].turns.pop_back();
    if (at->second.goes_on_from) add(*at->second.goes_on_from);
    live_.erase(at);
    ++refused_;
  }
  void see(const Finished& finished) {
    const auto at = live_.find(finished.request);
    if (at == live_.end()) return;  // a public prefix
    const Live live = std::move(at->second);
    live_.erase(at);
    end(live);
    add({live.where.conversation, now_, tokens_of(turn_of(live.where).pieces), live.place});
  }

  void end(const Live& live) {
    Turn& turn = turn_of(live.where);
    turn.reply_tokens = live.said.empty() ? live.most : static_cast<std::uint32_t>(live.said.size());
    said_.say(live.place, live.said, turn.reply);
    if (live.said.empty() && live.left >= 0) turn.cancel_after = live.left - live.arrived;
  }

  Trace trace_;
  Nanos now_ = 0;
  std::optional<Nanos> begin_;
  SaidTokens said_;
  std::map<RequestId, Live> live_;
  std::map<RequestId, std::vector<TokenId>> public_;
  std::map<std::uint64_t, std::map<std::uint32_t, Ended>> ended_;  // by the place where the prompt ends
  std::uint64_t refused_ = 0, publics_ = 0, cut_ = 0;
  std::size_t longest_ = 0;
};

}  // namespace

Result<Trace> trace_of_log(const std::string& path) {
  LogReader reader;
  const Result<ReplayReport> report =
      replay(path, [&](const LoggedStep& step, const Plan& plan) { reader.see(step, plan); });
  if (!report.ok()) {
    const Status& status = report.status();
    return status.message().starts_with(path) ? status : status.with_context(path);
  }
  return reader.take(path);
}

}  // namespace loci::sim
