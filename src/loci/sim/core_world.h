// SPDX-License-Identifier: Apache-2.0
// A world for the core's tests. Its clients come, leave and continue conversations. Its modelled device
// stores, for each token of each slot of each layer group, which prefix the state there belongs to. So the
// world sees at once when a span reads another prefix's state or missing state, and when a slot is written
// while others read it. It does not look at tokens behind a group's window. The "model" derives the next
// token from the state that a span reads, so wrong state also shows as wrong tokens.
//
// Histories may be cut (docs/decisions/truncation.md): a sequence is then what is left of its history. State
// behind the cut belongs to the whole history before it, dropped tokens too, and to how far it has been moved
// by cuts. A move that rotates keys moves it further.
//
// With passes ahead, the device computes a pass at any time after the passes before it, at the latest when
// the core is told of its end. So the world also sees when a slot is given away while a pass in flight reads
// or writes it.
//
// Everything is chosen by a Chooser: a seed or a fuzzer's bytes. A violation aborts with a message.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/plan.h"
#include "loci/sim/core_world_device.h"

namespace loci {

// A number in [0, bound); bound > 0.
using Chooser = std::function<std::uint64_t(std::uint64_t bound)>;

struct CoreWorldOptions {
  CoreConfig config;
  std::uint32_t events = 0;  // then the world only finishes what is running
  std::uint32_t vocabulary = 3;
  std::uint32_t tenants = 1;
  std::uint32_t live_max = 8;          // clients at once
  std::uint32_t turn_tokens_max = 40;  // that a turn adds at most to its history
  std::uint32_t first_tokens_max = 0;  // that a conversation begins with at most; 0: as in any turn
  std::uint32_t new_tokens_max = 60;
  bool cancels = true;
  bool deadlines = true;
  std::uint32_t poison_one_in = 0;       // one in so many spans is poisoned; 0: none
  std::uint32_t grammar_end_one_in = 0;  // one in so many samples ends its grammar; 0: none
  bool drain = false;
  std::uint32_t move_fails_one_in = 0;  // one in so many moves fails; 0: none
  bool memory_rooms = false;            // now and then the machine's memory is short
  bool pauses = false;                  // clients stop reading their replies now and then, and go on later
  // Passes take between half and twice the time that the costs predict, so that predictions are roughly right
  // when the core chooses between loading and computing. Else passes take no time.
  bool passes_take_time = false;
  bool restarts = false;            // the process ends now and then, and the disk stays
  bool publics = false;             // some arrivals are public prefixes, which are released later
  bool cuts = false;                // histories that outgrow the context are cut, and some others are
  bool nothing_is_evicted = false;  // the pool holds everything, so the world knows exactly what is cached
  // Everything is saved before the process ends, and nothing is evicted: a request that continues a sequence
  // finds all of it.
  bool ends_are_found = false;
  // Not empty: a small world, so that all such worlds can be enumerated. Clients send one of these prompts;
  // each event is one choice among the possible ones, and at most live_max clients come in all. Moves end in
  // the order in which they began; there is at most one restart.
  std::vector<std::vector<TokenId>> prompts;
  // In a small world: a prompt that is public from the start. Clients then belong to two tenants.
  std::vector<TokenId> public_prompt;
};

// What happened, for replays and reports.
struct WorldHistory {
  std::vector<std::pair<Nanos, Event>> events;
  std::vector<std::uint64_t> plan_digests;
  std::uint64_t digest = 0;  // of all plans, including those before a restart, and of each process's last
                             // counters
  CoreStats stats;
  std::uint64_t holes = 0;  // spans that sample nothing, because more of their prompt follows
  std::uint64_t copies = 0;
  std::uint64_t public_rows = 0;    // of public prefixes, read by spans of other requests
  std::uint64_t kept_rows = 0;      // rows of spans that were there in one group and missing in another
  std::uint64_t loads = 0;          // of blocks, that succeeded
  std::uint64_t cuts = 0;           // histories that were cut
  std::uint64_t rotated = 0;        // loads of blocks whose keys were rotated, which succeeded
  std::uint64_t rotated_ahead = 0;  // moves that rotate and began while nobody's prompt did
  std::uint64_t early_reads = 0;    // spans that read blocks that were still being loaded
  // Requests that loaded only some of the blocks that a tier had, by the plan that was forced.
  std::array<std::uint64_t, kRestoreRules.size()> partial_loads{};
  std::uint64_t partial_holes = 0;   // of these, requests that also lacked blocks that no tier had
  std::uint64_t partial_copies = 0;  // of these, requests that also had a part of a block copied
  std::uint64_t failed_loads = 0;    // of blocks
  std::uint64_t saves = 0;
  std::uint64_t ends_saved = 0;          // partial blocks among the saved
  std::uint64_t ends_loaded = 0;         // partial blocks among the loads
  std::uint64_t window_ends_loaded = 0;  // of these, in a model with windows
  std::uint64_t ends_continued = 0;      // requests that continued a sequence whose end was known
  std::uint64_t pauses = 0;
  std::uint64_t given_back = 0;  // slots
  std::uint64_t restarts = 0;
  std::uint64_t after_restart = 0;      // loads of blocks that an earlier process had saved
  std::uint64_t followed = 0;           // spans that continued from a sample that only the device had
  std::uint64_t gone_on = 0;            // spans of prompts that continued behind a pass in flight
  std::uint64_t shared_loads = 0;       // loads from the shared store
  std::uint64_t shared_lies = 0;        // loads of blocks that the store had claimed to have and had not
  std::uint64_t peer_parts_wanted = 0;  // blocks that other servers read
  std::uint64_t peer_parts_given = 0;   // blocks that they got, each group counted
  std::uint64_t peer_parts_cut = 0;     // of which they got first layers and not the others
  std::uint64_t peer_rounds_given = 0;  // layers that they got behind the first ones of a block
};

class World {
 public:
  World(const CoreWorldOptions& options, Chooser choose);
  WorldHistory run();

 private:
  struct Client {
    std::string tenant;
    std::vector<TokenId> tokens;   // without those that were dropped
    std::size_t front = 0;         // of them that are before the cut
    std::vector<TokenId> dropped;  // none: the history is whole
    std::uint32_t prompt_tokens = 0;
    Arrival arrival;
    bool is_public = false;
    bool started = false;
    bool ended = false;
    bool cancelled = false;
    bool paused = false;
    std::uint32_t poisoned_passes = 0;  // in a row
    std::uint32_t cached_tokens = 0;
    std::set<std::uint32_t> computed;  // of its prompt, before its first sample
    bool restored = false;
    bool was_paused = false;
    GrammarEnd grammar_end = GrammarEnd::kGoesOn;
  };
  // To what the state of a token belongs.
  struct Seen {
    std::uint64_t history = 0;  // hash of all tokens up to it, dropped ones too
    std::uint64_t moved = 0;    // towards the beginning, by tokens that were dropped before it
    std::uint64_t content() const { return history + moved * kMovedByOne; }
  };
  static constexpr std::uint64_t kMovedByOne = 0x9e3779b97f4a7c15;
  // A pass in flight.
  struct Flight {
    Plan plan;  // its pass and spans
    bool ran = false;
    PassDone done;                                    // set once it ran
    std::set<RequestId> poisoned;                     // requests with poisoned spans, once it ran
    std::vector<std::pair<RequestId, Seen>> written;  // state that the pass computes
    std::set<RequestId> requests;
    std::set<std::size_t> doomed;  // spans that read blocks whose load has failed since
    std::set<RequestId> goes_on;   // requests that also have spans in the pass before, if that was in flight
  };

  bool one_in(std::uint64_t n) { return choose_(n) == 0; }
  // In a small world only events, and what a crash leaves, are chosen; so all such worlds can be enumerated.
  bool is_small() const { return !options_.prompts.empty(); }
  std::uint64_t prefix_begin(const std::string& tenant) const;
  static std::uint64_t extend(std::uint64_t prefix, TokenId token);
  TokenId next_token(std::uint64_t prefix) const;
  std::uint64_t prefix_hash(const std::string& tenant, const std::vector<TokenId>& tokens,
                            std::size_t count) const;
  static std::vector<TokenId> history_of(const Client& client);
  // Of each token of a sequence of the client that has these tokens: its state, if it is the group's.
  std::vector<Seen> seen_by(const Client& client, const std::vector<TokenId>& tokens,
                            const std::string& tenant) const;

  void run_random();
  void run_small();
  void step(const Event& event);
  void digest_stats();
  void arrive();
  void arrive(Arrival arrival);
  void cut(Arrival& arrival);
  std::vector<TokenId> make_prompt(const std::string& tenant);
  std::map<RequestId, Client>::reverse_iterator longest_conversation();
  void cancel_one();
  void pause_one();
  void resume_all();
  void change_disk_room();
  void change_memory_room();
  void change_costs();
  void release_one();
  void forget_one();
  // Passes (core_world_passes.cc).
  void finish_pass();
  Nanos time_of(const Pass& pass);
  void begin_pass(const Plan& plan);
  bool in_flight(RequestId request) const;

  void run_pass(Flight& flight);
  void run_next_pass();
  TokenId token_of(const Span& span, RequestId request) const;
  std::vector<TokenId> tokens_of(const Span& span, RequestId request);
  bool follows_poisoned(const Flight& flight, RequestId request) const;
  void check_span(const Flight& flight, const Span& span, const SpanPlan& plan) const;
  void write_span(Flight& flight, std::size_t index, bool garbage);
  void read_span(const Pass& pass, std::size_t index, const SpanPlan& plan);
  std::size_t length_max() const;
  SpanOutcome outcome(const Span& span, const SpanPlan& plan);

  // Tiers (core_world_tiers.cc).
  using Contents = std::array<std::uint64_t, kBlockTokens>;
  struct LowerSlot {
    Contents rows{};  // 0: nothing is there
    BlockEntry entry;
    std::uint64_t saved_in = 0;  // the number of the process that saved it
  };
  struct WorldMove {
    Move move;
    std::vector<Contents> source;      // by part: the contents when the move began
    std::optional<MoveResult> result;  // the result, once it is decided
  };
  LowerSlot& lower(Tier tier, std::uint32_t pool, SlotId slot);
  std::uint32_t pool_of(const Move& move, Tier tier, std::uint32_t group) const;
  Contents contents(const Move& move, const MovePart& part);
  void see(const Move& move);
  void see(const RecordChange& change);
  void see(const FreedSlot& freed);
  bool decide(WorldMove& move);
  bool arrive_loads(const Span& span);
  bool reads(const Span& span, const MovePart& part) const;
  void doom(const Move& move);
  void end_some_moves();
  void end_moves(std::size_t count);
  void restart();
  void recover();

  // The store that servers share (core_world_shared.cc).
  bool has_shared() const { return options_.config.groups.front().shared_blocks > 0; }
  Contents shared_contents(const Move& move, const MovePart& part) const;
  bool decide_shared(WorldMove& move);
  void see(const SharedAsk& ask);
  void answer_one();
  void lose_some();

  // Servers that read this one's state (core_world_peers.cc).
  void know(const ChainKey& key);
  ChainKey some_key();
  struct WorldPeerRead {
    struct Block {
      std::uint8_t groups = 0;                            // whose read has not ended
      std::array<std::uint8_t, kLayerGroupsMax> round{};  // of each group: the one that is given next
    };
    std::vector<Block> blocks;
    std::uint8_t rounds = 1;
  };
  void act_as_peer();
  WorldPeerRead::Block* peer_block(const PeerPlace& place);
  void see(const PeerGone& gone);
  void see_given(const PeerPlace& place, std::uint32_t group);
  void see_peers(const Plan& plan);

  void see(const Plan& plan);
  void see(const Started& output);
  void see(const Restored& output);
  void see(const TokenSampled& output);
  void see(const Finished& output);
  void see(const Rejected& output);
  void check_cached(const Client& client, std::uint32_t said) const;
  void check_end_found(const Client& client);
  void check_wake(const Plan& plan) const;
  void check_end();
  Client& client(RequestId id);

  CoreWorldOptions options_;
  Chooser choose_;
  Core core_;
  Nanos now_ = 0;
  std::uint64_t next_request_ = 1;
  std::map<RequestId, Client> clients_;
  std::vector<RequestId> live_;
  WorldDevice device_;
  // Histories whose last token's state was computed, and after which cuts: the least that it was moved.
  std::map<std::uint64_t, std::uint64_t> committed_;
  std::set<std::uint64_t> ends_;       // where sequences ended: histories up to the last computed token
  std::set<std::uint64_t> published_;  // prefixes that have ever been public
  std::vector<RequestId> public_;      // requests whose prefixes are public now
  bool had_publics_ = false;
  std::deque<Flight> flights_;  // the pass that ends first comes first
  Flight last_run_;             // the pass that ran last
  std::uint64_t last_pass_ = 0;
  bool draining_ = false;
  Nanos drain_deadline_ = kNever;
  bool drained_ = false;
  WorldHistory history_;

  std::array<std::vector<std::vector<LowerSlot>>, kTiers> lower_;  // by tier, group and slot
  std::map<SlotId, BlockEntry> holes_;
  std::vector<WorldMove> moves_;
  std::map<std::pair<ChainKey, std::uint32_t>, Contents> shared_;  // by key and group
  std::vector<SharedAsk> asks_;                                    // questions that are not answered yet
  std::uint64_t last_move_ = 0;
  std::vector<ChainKey> known_keys_;  // some of the keys that moves had
  std::map<PeerReadId, WorldPeerRead> peer_reads_;
  std::set<PeerReadId> left_reads_;
  std::uint64_t last_read_ = 0;
  // Of the present process: requests that it rejected, and those of them that may come again.
  std::uint64_t rejected_ = 0, rejected_for_now_ = 0;
};

// Options for a world that the chooser draws: tiny pools, any policy.
CoreWorldOptions random_world(const Chooser& choose);
// The same with windows of a few blocks: either one group, which has a window, or two or three groups.
CoreWorldOptions random_window_world(const Chooser& choose);
// Either of these with host memory, a disk or both, and with restarts; moves take any time and may fail.
CoreWorldOptions random_tier_world(const Chooser& choose);
// Models with windows on tiers that hold much more than the device, so that sequences which come back go on
// from their ends.
CoreWorldOptions random_window_tier_world(const Chooser& choose);
// Conversations of many blocks that do not fit the device together, on tiers that bring a block in about the
// time of computing one: every plan loads some of a request's blocks and computes others.
CoreWorldOptions random_restore_world(const Chooser& choose);
// The same with a store that servers share. The store is late, loses blocks and claims to have blocks that it
// lacks. After some restarts the process is another server.
CoreWorldOptions random_shared_world(const Chooser& choose);
// Any of these worlds but the first two, where histories are cut.
CoreWorldOptions random_cut_world(const Chooser& choose);
// Any of these worlds with passes ahead.
CoreWorldOptions random_ahead_world(const Chooser& choose);

}  // namespace loci
