// SPDX-License-Identifier: Apache-2.0
// The clients of a run: whose turn comes when, what each request asks for, and what became of it. They see
// one service, whichever instances answer.
//
// It owns the conversations' tokens and the records of requests. A request whose instance has died may be
// repeated elsewhere. The other instance makes the whole reply again, and the client is told only the tokens
// that it does not have yet (docs/cluster.md, "A stream continues on another instance").
//
// Invariants, which are checked as they happen:
//   1. A request ends exactly once.
//   2. A token that comes again is the one that the client has.
//   3. Each sampled token was told to its client, came again, or was of a request that was not live.
//
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "loci/engine/core/plan.h"
#include "loci/policy/truncation.h"
#include "loci/serve/generation/early_read_pace.h"
#include "loci/sim/agenda.h"
#include "loci/sim/seen_prefixes.h"
#include "loci/sim/talk.h"
#include "loci/sim/trace.h"
#include "loci/sim/world.h"

namespace loci::sim {

class Clients {
 public:
  // All four must outlive it.
  Clients(const Trace& trace, const WorldOptions& options, Agenda& agenda, WorldReport& report);

  // The first turns of all conversations become due.
  void begin();
  // Whether some requests have not arrived, or not ended.
  bool is_open() const { return report_.requests.size() < turns_ || !live_.empty(); }
  bool is_live(RequestId id) const { return live_.contains(id.value); }
  std::vector<RequestId> live() const;  // in the order of their arrival
  // Takes the conversation's turn that is due. Absent: it is too long. Then the turns that would go on from
  // it are too long as well; the next one that brings its whole prompt becomes due.
  std::optional<Arrival> take_turn(std::uint32_t conversation);
  // Names the conversation to fronts. If the trace does not say which requests are one conversation, the
  // prompt's first thousand tokens do.
  std::uint64_t beginning_of(RequestId id) const;

  const RequestRecord& record(RequestId id) const { return report_.requests[id.value - 1]; }
  // The next token that its instance samples.
  TokenId next_token(RequestId id);
  // What an instance says.
  void see(const Started& started);
  void see(const Restored& restored);
  void see(const TokenSampled& sampled);
  void end(RequestId id, Outcome outcome);
  // Another instance has computed so much of its prompt, which its own will read as state of a peer.
  // `reads`: what its own has read of that, and so has already.
  void prefilled(RequestId id, std::uint32_t computed, const EarlyReadPace& reads) {
    of(id).prefilled = computed;
    live_.at(id.value).reads = reads;
  }
  // Its instance died; another one is asked for the whole reply.
  void repeat(RequestId id);
  // What the request asks for, once more. It must be live.
  const Arrival& asked(RequestId id) const { return live_.at(id.value).arrival; }

  // Requests behind fronts whose present instance has begun to answer, and those that have ended, since the
  // last call.
  std::vector<RequestId> take_begun() { return std::exchange(begun_, {}); }
  std::vector<RequestId> take_ended() { return std::exchange(ended_, {}); }

  struct Counts {
    std::uint64_t told = 0;           // tokens
    std::uint64_t again = 0;          // tokens that clients had
    std::uint64_t prompts_again = 0;  // tokens of prompts that were begun on an instance that died
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Live {
    Arrival arrival;         // where requests may be repeated; else only its id
    std::uint32_t said = 0;  // tokens that the present instance has sampled
    Nanos lost_at = kNever;  // when its instance died, until a new token comes
    bool started = false;    // on the present instance
    EarlyReadPace reads;     // likewise
  };

  // Whether the turn can find what other conversations said.
  bool finds_others(std::uint32_t conversation, const Turn& turn) const {
    return !turn.appends || shares_first_turn_[conversation];
  }
  bool has_fronts() const { return options_.cluster.instances > 0; }
  RequestRecord& of(RequestId id) { return report_.requests[id.value - 1]; }
  void schedule_turn(std::uint32_t conversation, Nanos from);
  // Records the conversation's next turn as too long. `prompt_tokens`: 0 where nobody knows, because the turn
  // would have gone on from one that was never said.
  void drop_turn(std::uint32_t conversation, std::uint32_t prompt_tokens);
  // A turn was too long: so are those that go on from it. The first that does not becomes due.
  void go_on_without(std::uint32_t conversation);
  // The cuts of the conversation's history if it is too long; absent: it cannot go on.
  std::optional<std::vector<TokenRange>> cuts(std::uint32_t conversation) const;
  void take_sources(RequestId id, const ContextSources& sources);
  void mix(std::uint64_t a, std::uint64_t b);

  const Trace& trace_;
  const WorldOptions& options_;
  Agenda& agenda_;
  WorldReport& report_;
  const std::uint64_t turns_;  // of the trace
  std::vector<Talk> talks_;
  // The longest reply of each conversation. Its client asks for that many tokens in every turn, because it
  // cannot know how long the next reply gets. So its cuts stay where they are (TruncationNeeds).
  std::vector<std::uint32_t> asked_replies_;
  std::map<std::uint64_t, Live> live_;  // requests that have not ended
  // By conversation: whether another one has the same first turn, so that it can find more than its own.
  std::vector<bool> shares_first_turn_;
  SeenPrefixes seen_;  // of conversations that do, and of turns that bring their whole prompt
  std::vector<RequestId> begun_, ended_;
  Counts counts_;
};

}  // namespace loci::sim
