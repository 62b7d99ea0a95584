// SPDX-License-Identifier: Apache-2.0
// The core's state machine. It routes events between the owners of what it is about:
//   transfers.h        moves between tiers: loads, saves, prefetches
//   recovery.h         what the disk has from before; time to live
// and does the rest itself, in these source files:
//   core.cc            construction, events in, plans out
//   core_admission.cc  what a request's tokens find in the index; taking it into the batch
//   core_schedule.cc   growth, forming a pass
//   core_ahead.cc      the pass that is planned while another is in flight
//   core_fair.cc       shares between tenants: whose prompts a pass takes, who gives way
//   core_window.cc     what groups with a window need: where a request may go on, slots promised, letting go
//   core_tiers.cc      what requests have to do with transfers
//   core_lookahead.cc  what the queue needs
//   core_truncate.cc   sequences that have dropped a part: lineages
//   core_public.cc     public prefixes: looking them up, keeping and releasing them
//   core_commit.cc     what a pass has brought; how requests end
//   core_check.cc      invariants
#pragma once

#include <bitset>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/probes.h"
#include "loci/engine/core/recovery.h"
#include "loci/engine/core/transfers.h"
#include "loci/memory/block_index.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/slot_pool.h"
#include "loci/policy/admission.h"

namespace loci {

// Of the prompt's tokens those that are computed.
inline std::size_t kept_tokens(const Arrival& event) {
  if (event.dropped.empty()) return event.prompt.size();
  return event.prompt.size() - (event.dropped.back().end - event.dropped.front().begin);
}

// A request from its arrival to its end. It waits, or it runs: then it has pinned one block for every
// kBlockTokens of its tokens, the last of them (the tail) its own. It holds their parts in the groups
// without window, and in the others those parts that tokens see which it is still to compute.
struct CoreRequest {
  RequestId id;
  std::uint64_t arrival = 0;  // counts arrivals
  Nanos arrived_at = 0;
  SharingGroup group;           // its tenant
  std::string sharing;          // sharing_of() its arrival: what the keys of its blocks begin with
  std::uint32_t weight = 1;     // of its tenant
  std::vector<TokenId> tokens;  // the prompt, then what was sampled
  std::uint32_t prompt_tokens = 0;
  std::uint32_t max_new_tokens = 0;
  std::uint32_t min_new_tokens = 0;
  std::vector<TokenId> stop_tokens;  // sorted
  Nanos deadline = kNever;
  bool is_public = false;                      // a public prefix
  std::unique_ptr<const CoreLineage> lineage;  // null: nothing was dropped
  bool started = false;                        // was admitted before
  std::uint32_t cached_tokens = 0;
  std::uint32_t suspensions = 0;
  std::uint32_t poisoned_passes = 0;  // in a row

  // While it runs:
  bool running = false;
  std::vector<BlockPin> blocks;                             // blocks[i]: tokens [i, i + 1) * kBlockTokens
  std::array<std::vector<SlotId>, kLayerGroupsMax> tables;  // their parts' slots; kNoSlot: not held
  std::optional<AppendToken> tail;                          // of the last block, until it is whole
  std::uint32_t public_blocks = 0;  // the first of its blocks, which are public prefixes'
  std::uint32_t whole_blocks = 0;   // blocks before this one lack no state that is needed
  bool decoding = false;            // lacks the state of its last token alone
  // Groups with a window:
  GroupCounts promised{};       // slots that it may hold
  GroupCounts held{};           // that it holds
  GroupCounts first_held{};     // blocks before this one were let go
  std::uint32_t parting = 0;    // tokens before the place where it left what others have; 0: it did not
  std::uint32_t in_passes = 0;  // passes in flight that have spans of it
  OperationId last_pass;        // that had
  std::optional<FinishReason> ending;  // ends when the first of them has
  // Loads:
  std::vector<std::uint32_t> loads;  // blocks that were being loaded when last looked at
  bool joined = false;               // it may compute on what is still being loaded
  bool awaits_loads = false;         // a pass found that something will not come: no more before all is known
  bool misses = false;               // its passes in flight read what did not come: they bring nothing
  bool restart = false;              // what it went on from will not come (groups with a window)
  bool without_disk = false;   // the disk did not bring what it needed: until it gets on, it is not asked
  std::vector<ChainKey> keys;  // of its whole blocks, while it waits
  bool preloaded = false;      // its loads have begun before it was admitted
  std::map<ChainKey, Tier> preloads;  // the blocks' that they were of, and where these came from

  // Passes ahead:
  bool follows = false;           // a pass may go on from its sample while that is on the device
  std::uint32_t computes_to = 0;  // the end of what the last of them computes; 0: they only copy
  bool wasted = false;            // the first one was poisoned: what goes on from it brings nothing
  // For the block of the token that the pass in flight samples, where the pass ahead begins it.
  CoreSlots grown;
  // Groups with a window: slots of its promise that passes in flight read, and that are no block's now.
  GroupCounts lent{};
  std::array<std::uint32_t, 2> computes_from{};  // the first token that each pass in flight computes

  bool has_grown() const { return grown.front().has_value(); }
  std::uint32_t length() const { return static_cast<std::uint32_t>(tokens.size()); }
  std::uint32_t new_tokens() const { return length() - prompt_tokens; }
};

// The state of one block that a pass brings.
struct CorePiece {
  BlockId block;                     // kNoBlock: that of CoreRequest::grown
  std::uint32_t filled = 0;          // after the pass
  std::optional<std::size_t> claim;  // of the pass; none: the request's own tail
};

struct CoreSpan {
  CoreRequest* request = nullptr;  // null: it has ended, and the span is wasted
  std::uint32_t position = 0;
  std::uint32_t count = 0;
  bool sample = false;
  std::size_t first_piece = 0;  // of the pass
  std::size_t piece_count = 0;
  GroupCounts write_from{};                              // BlockTable::write_from
  std::optional<std::uint32_t> token_of = std::nullopt;  // Span::token_of
  bool wasted = false;  // it goes on from what was poisoned: nothing of it counts
};

struct CoreCopy {
  CoreRequest* request = nullptr;
  BlockPin source;
  CorePiece target;
};

// What a request held that ended while a pass had spans of it.
struct CoreKept {
  std::vector<BlockPin> blocks;
  CoreSlots grown;
  GroupCounts promised{};
};

// A slot that a pass in flight may read or write, and which is no block's any more.
struct CoreDetached {
  std::optional<RequestId> owner;  // whose CoreRequest::lent counts it; none: State::lingering_ does
  std::uint32_t group = 0;
  SlotReservation slot;
};

// The pass that is being formed, then in flight.
struct CorePass {
  OperationId id;
  std::uint32_t budget = 0;  // tokens left
  std::vector<CoreCopy> copies;
  std::vector<CoreSpan> spans;
  std::vector<CorePiece> pieces;
  // Until it has ended (and behind its claims, which end before pins do):
  std::vector<CoreKept> kept;
  std::vector<CoreDetached> detached;
  std::vector<std::optional<AppendToken>> claims;
  // Claims that the pass before holds until it ends: place here, place there.
  std::vector<std::pair<std::size_t, std::size_t>> inherits;
  std::vector<CoreRequest*> requests;  // that have spans or copies
};

// The prompt tokens that running requests are to compute.
struct CorePrompts {
  std::map<std::string, std::uint64_t> wanted;  // by tenant
  std::uint64_t total = 0;

  void add(const CoreRequest& request, std::uint64_t tokens) {
    wanted[request.group] += tokens;
    total += tokens;
  }
};

// State that stays for all.
struct CorePublicPrefix {
  std::uint32_t tokens = 0;
  std::vector<BlockPin> blocks;
};

class Core::State {
 public:
  State(const CoreConfig& config, IndexPools pools);

  Plan step(Nanos now, const Event& event);
  CoreStats stats() const;
  std::vector<PublicPrefix> public_prefixes() const;
  void check_invariants() const;

 private:
  // core.cc
  void on(const Arrival& event, Plan& plan);
  void on(const Cancel& event, Plan& plan);
  void on(const PassDone& event, Plan& plan);
  void on(const Tick& event, Plan& plan);
  void on(const Drain& event, Plan& plan);
  void on(const Withdraw& event, Plan& plan);
  void on(const MovesEnded& event, Plan& plan);
  void on(const Recovered& event, Plan& plan);
  void on(const DiskRoom& event, Plan& plan);
  Status refusal(const Arrival& event) const;
  bool find_place(const Arrival& event, Plan& plan);
  void reject(RequestId request, Status status, Plan& plan);
  void reject_waiting(CoreRequest& request, Status status, Plan& plan);
  void expire(Plan& plan);
  Nanos next_deadline() const;

  // core_admission.cc
  CoreProbes probe(const CoreRequest& request, Tier slowest) const;
  CoreProbes choose(const CoreRequest& request, bool copies, Tier slowest) const;
  void start(CoreRequest& request, ContextSources from, Plan& plan);
  ContextSources sources(const CoreRequest& request, const CoreProbes& probes, bool with_copies) const;
  void probe_siblings(BlockId parent, std::span<const TokenId> tokens, CoreProbe& found) const;
  void count_needs(CoreProbes& probes) const;
  bool admissible(const CoreProbes& probes, const CorePass& pass) const;
  bool copies_fit(const CoreProbes& probes, const CorePass& pass) const;
  bool try_admit(CoreRequest& request, CorePass& pass, Plan& plan);
  void admit(CoreRequest& request, const CoreProbes& probes, bool with_copies, CorePass& pass);
  void admit_blocks(CoreRequest& request, const CoreProbes& probes, BlockPin root,
                    std::vector<std::optional<BlockPin>> siblings, CorePass& pass);
  void place_admitted(BlockPin& pin, bool all_groups);
  void fill_tables(CoreRequest& request) const;
  void add_copy(CoreRequest& request, BlockPin source, BlockId target, std::uint32_t tokens, bool to_tail,
                CorePass& pass);

  // core_public.cc
  void probe_public(const CoreRequest& request, CoreProbes& probes) const;
  void probe_public_siblings(const CoreProbes& probes, std::span<const TokenId> tokens,
                             CoreProbe& found) const;
  BlockPin open_parent(const CoreProbes& probes);
  Status public_refusal(const Arrival& event) const;
  void keep_public(CoreRequest& request);
  void end_without_memory(CoreRequest& request, Plan& plan);
  ChainKey first_key(const CoreRequest& request) const;
  void check_public() const;

  // core_tiers.cc
  void start_loads(CoreRequest& request, const CoreProbes& probes);
  bool any_loading(const CoreRequest& request) const;
  bool joins(CoreRequest& request, const CorePass& pass);
  void miss(const Transfers::Missed& missed);
  void wish_windows(const CoreRequest& request);
  struct PassLoad {
    bool decodes = false;  // somebody waits for its next token
    std::uint32_t rows = 0;
    std::uint64_t context = 0;
  };
  PassLoad load_of(const CorePass& pass) const;
  Nanos patience_of(const CorePass& pass) const;
  void save();

  // core_lookahead.cc
  const std::vector<ChainKey>& keys_of(CoreRequest& request) const;
  void size_windows();
  void look_ahead();
  void prefetch();
  void preload();
  void preload(CoreRequest& request);

  // core_truncate.cc
  Status truncation_refusal(const Arrival& event) const;
  std::unique_ptr<const CoreLineage> lineage_of(const Arrival& event) const;
  ChainKey original_root(const Arrival& event, std::uint32_t& public_blocks) const;
  BlockId find_parent(const CoreProbes& probes, std::size_t block) const;
  void find_original(const CoreLineage& lineage, std::uint32_t block, Tier slowest, CoreProbe& found) const;
  void fit_originals(CoreProbes& probes, const CorePass& pass) const;
  std::vector<BlockPin> hold_originals(const CoreProbes& probes);

  // core_window.cc
  bool windowed(std::uint32_t group) const { return config_.groups[group].window != 0; }
  std::uint32_t ring_blocks(std::uint32_t group, std::uint32_t tokens) const;
  void limit_windows();
  bool usable(const CoreProbes& probes, std::uint32_t block, std::uint32_t tokens, const GroupCounts& runs,
              bool full_groups_whole) const;
  void choose_start(CoreProbes& probes, bool with_copies, Tier slowest) const;
  bool lacks_before_start(const CoreProbes& probes, std::uint32_t block) const;
  void compute_all(CoreProbes& probes) const;
  void find_parting(CoreProbes& probes) const;
  void promise(const CoreRequest& request, CoreProbes& probes) const;
  void hold_window(CoreRequest& request, const CoreProbes& probes);
  static bool has_place(const CoreRequest& request, std::uint32_t group) {
    return request.held[group] + request.lent[group] < request.promised[group];
  }
  bool take_parts(CoreRequest& request, std::uint32_t block_number);
  void advance(CoreRequest& request);
  void let_go_behind(CoreRequest& request);

  // core_schedule.cc
  void schedule(Plan& plan);
  void take_prompts(CorePass& pass, Plan& plan);
  void grow(Plan& plan);
  bool grow(CoreRequest& request);
  void add_spans(CoreRequest& request, CorePass& pass);
  std::optional<CorePiece> open_piece(CoreRequest& request, std::uint32_t block_number, CorePass& pass);
  bool continues(const CoreSpan& span, const Block& block) const;
  void add_piece(CoreRequest& request, std::uint32_t position, std::uint32_t count, CorePiece piece,
                 bool adjacent, CorePass& pass) const;
  void emit(CorePass pass, Plan& plan);
  void stop_running(CoreRequest& request);

  // core_ahead.cc
  void schedule_ahead(Plan& plan);
  bool form_ahead(CorePass& pass, Plan& plan);
  bool goes_on(const CoreRequest& request) const;
  bool prompt_waits(const CorePass& before) const;
  std::optional<CorePiece> left_begun(const CoreRequest& request, std::uint32_t block_number) const;
  static CorePiece go_on_with(CorePiece begun, CorePass& pass);
  void inherit_claims(CorePass& ended);
  bool may_follow(CoreRequest& request) const;
  bool reserve_ahead(CoreRequest& request);
  void release_ahead(CoreRequest& request);
  void add_following(CoreRequest& request, std::uint32_t span, CorePass& pass);
  void open_ahead(CoreRequest& request);
  void waste_ahead(CoreRequest& request);
  void keep_for_passes(CoreRequest& request);
  void detach(CoreRequest& request, std::uint32_t group, std::optional<SlotReservation> slot);
  void leave_pass(CoreRequest& request);
  void release_kept(CorePass& pass);

  // core_fair.cc
  std::uint32_t distance(CoreRequest& request) const;
  std::uint64_t missing_tokens(const CoreRequest& request) const;
  CorePrompts prompts() const;
  void admit_waiting(CorePrompts& prompts, CorePass& pass, Plan& plan);
  void add_prompts(const CorePrompts& prompts, CorePass& pass);
  std::uint32_t blocks_held(const CoreRequest& request, std::uint32_t group) const;
  std::map<std::string, std::uint64_t> blocks_by_tenant(std::uint32_t group) const;
  CoreRequest* latest_of(const std::string& tenant) const;
  void suspend(CoreRequest& request);
  void suspend_for_growth();
  void make_room();
  bool someone_gives_way();
  CoreRequest* slot_victim(const CoreRequest& head) const;
  bool asks_for_memory(const CoreRequest& head, std::uint32_t group,
                       const std::map<std::string, std::uint64_t>& held) const;
  std::uint64_t blocks_needed(const CoreRequest& head, std::uint32_t group) const;
  CoreRequest* memory_victim(const CoreRequest& head, std::uint32_t group,
                             const std::map<std::string, std::uint64_t>& held, std::uint64_t weights) const;
  void make_memory(const CoreRequest& head, std::uint32_t group);

  // core_commit.cc
  void commit(const PassDone& done, Plan& plan);
  void commit_piece(CoreRequest& request, const CorePiece& piece, const CorePass& pass);
  void complete_tail(CoreRequest& request);
  void take_sample(CoreRequest& request, const SpanOutcome& outcome, Plan& plan);
  void end(CoreRequest& request, FinishReason reason, Plan& plan);
  void end_when_free(CoreRequest& request, FinishReason reason, Plan& plan);
  Nanos retry_after() const;

  // core_check.cc
  void check_request(const CoreRequest& request) const;
  void check_tables(const CoreRequest& request) const;
  void check_promises() const;
  void check_spans(const CoreRequest& request) const;
  void check_spans(const CoreRequest& request, const CorePass& pass, std::uint32_t group,
                   std::vector<std::uint32_t>& filled) const;
  void check_following(const CorePass& before, const CorePass& pass) const;
  void check_passes() const;
  void check_pins() const;
  void check_pass(const CorePass& pass) const;

  CoreConfig config_;
  std::uint32_t sequence_tokens_max_;  // of prompt and output, by context and pool
  std::uint32_t running_max_;
  std::uint32_t group_count_;
  bool windows_ = false;          // some group has one
  GroupCounts reserve_blocks_{};  // groups without window
  GroupCounts chunk_tokens_{};    // groups with one: tokens of a prompt for which slots are promised
  GroupCounts promised_{};        // to all that run
  ChainKeyHasher hasher_;
  CostModel costs_;
  bool through_ = true;  // save blocks as they fill
  BlockIndex index_;

  // The pins and tokens inside are dropped before the index: members end in reverse order.
  std::map<RequestId, std::unique_ptr<CoreRequest>> requests_;
  std::vector<CoreRequest*> running_;  // by arrival
  FairQueue queue_;
  std::optional<RequestId> blocked_head_;            // lacked blocks, and none were let go since
  std::set<std::pair<Nanos, RequestId>> deadlines_;  // of requests that are not ending
  std::deque<CorePass> in_flight_;                   // the first to end first

  Transfers transfers_;
  // Groups with a window: slots of loads that have ended, which a pass in flight may still read.
  GroupCounts lingering_{};
  Recovery recovery_;
  StateAge state_age_;
  std::vector<std::pair<BlockId, ChainKey>> wanted_;  // by the queue, in its order
  std::size_t prefetch_at_ = 0;                       // of wanted_
  std::size_t prefetch_end_ = 0;
  std::uint32_t prefetch_window_ = 0;  // requests
  std::uint32_t eviction_window_ = 0;
  bool queue_changed_ = false;
  std::map<RequestId, CorePublicPrefix> public_;
  std::uint32_t public_held_ = 0;  // blocks of public prefixes, each once

  Nanos now_ = 0;
  std::uint64_t arrivals_ = 0;
  std::uint64_t passes_ = 0;
  std::optional<Nanos> drain_deadline_;
  bool drained_ = false;
  std::optional<Nanos> last_end_;
  Nanos end_interval_ = 0;  // moving mean of the time between ends; 0: none seen
  std::uint32_t refused_since_end_ = 0;
  CoreStats totals_;  // the counters that only grow
};

}  // namespace loci
