// SPDX-License-Identifier: Apache-2.0
// The core's state and its transitions, for the core's own source files:
//   core.cc            construction, events in, plans out
//   core_admission.cc  what a request's tokens find in the index; taking it into the batch
//   core_schedule.cc   growth, forming a pass
//   core_ahead.cc      the pass that is planned while another is in flight
//   core_fair.cc       shares between tenants: whose prompts a pass takes, who gives way
//   core_window.cc     what groups with a window need: where a request may go on, slots promised, letting go
//   core_tiers.cc      loads and saves
//   core_lookahead.cc  what the queue needs
//   core_recover.cc    what the disk has from before; time to live
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
#include <unordered_map>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/link_breaker.h"
#include "loci/memory/block_index.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/slot_pool.h"
#include "loci/policy/admission.h"

namespace loci {

// A number for each group of layers.
using GroupCounts = std::array<std::uint32_t, kLayerGroupsMax>;
// A slot, or none, for each of them.
using CoreSlots = std::array<std::optional<SlotReservation>, kLayerGroupsMax>;

// A sequence that has dropped tokens after its front (docs/decisions/truncation.md): its blocks from
// `front_blocks` on are below a gate of their own, the lineage's.
struct CoreLineage {
  // The same tokens' block in a lineage before, where it is so many blocks further from the begin.
  struct Original {
    ChainKey key;
    std::uint32_t shift_blocks = 0;
  };
  std::uint32_t front_blocks = 0;  // at least 1
  ChainKey gate;
  std::vector<std::vector<Original>> originals;  // of block front_blocks + i; the oldest lineage's first
};

// Of the prompt's tokens those that are computed.
inline std::size_t kept_tokens(const Arrival& event) {
  if (event.dropped.empty()) return event.prompt.size();
  return event.prompt.size() - (event.dropped.back().end - event.dropped.front().begin);
}

inline bool begins_lineage(const CoreLineage* lineage, std::size_t block) {
  return lineage != nullptr && block == lineage->front_blocks;
}

// A request from its arrival to its end. It waits, or it runs: then it has pinned one block for every
// kBlockTokens of its tokens, the last of them (the tail) its own. It holds their parts in the groups
// without window, and in the others those parts that tokens see which it is still to compute.
struct CoreRequest {
  RequestId id;
  std::uint64_t arrival = 0;  // counts arrivals
  Nanos arrived_at = 0;
  SharingGroup group;           // its tenant
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

// A block whose parts are being loaded, by one move for each tier that they come from.
struct CoreLoad {
  AppendToken token;
  std::bitset<kLayerGroupsMax> groups;  // still to come
  std::vector<OperationId> moves;       // that have not ended
  Tier slowest = Tier::kHost;           // of the sources
  Nanos ends_at = 0;                    // predicted
  // Slots that loads write to though the parts have others by now (BlockIndex::complete).
  CoreSlots replaced;
  OperationId replaced_in;  // the last pass that was in flight then; it may read those slots. 0: none
};

// In flight. The pin holds the device's parts, as source or as target.
struct CoreMove {
  Tier from = Tier::kDevice;
  Tier to = Tier::kDevice;
  BlockPin pin;
  std::vector<MovePart> parts;
  // Truncation: the state comes from another block than the pin's, whose keys are rotated by so many
  // positions.
  std::optional<BlockPin> original = std::nullopt;
  std::int32_t rotate_by = 0;

  // The block that the parts come from.
  BlockId source() const { return original ? original->block() : pin.block(); }
};

// A block to be saved, if it is still there when its turn comes.
struct SaveWish {
  BlockId block;
  ChainKey key;
  bool windows = false;  // groups with a window too
};

// A request that waits, as looking ahead sees it.
struct CoreWaiting {
  RequestId id;
  std::uint32_t tokens = 0;
  bool in_window = false;
  // In the window: its blocks that the index has, up to the first that it lacks; so many of them have been
  // looked at for a prefetch.
  std::vector<std::pair<BlockId, ChainKey>> wants;
  std::size_t prefetched = 0;
};

// What a request held that ended while a pass had spans of it.
struct CoreKept {
  std::vector<BlockPin> blocks;
  CoreSlots grown;
  GroupCounts promised{};
};

// A slot that a pass in flight may read or write, and which is no block's any more.
struct CoreDetached {
  std::optional<RequestId> owner;  // whose CoreRequest::lent counts it; none: State::moving_ does
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

// What the index has for one block of a request that waits.
struct CoreProbe {
  enum class Source : std::uint8_t { kNone, kCopy, kTakeOver };
  ChainKey key;                   // not of the tail
  BlockId node = kNoBlock;        // not of the tail
  Source source = Source::kNone;  // a sibling whose first `run` tokens are the block's
  BlockId sibling = kNoBlock;
  std::uint32_t run = 0;
  bool load = false;               // what it lacks comes from a slower tier, or from its original
  BlockId original = kNoBlock;     // of a lineage before, which has all that this one lacks
  std::uint32_t shift_blocks = 0;  // CoreLineage::Original
  bool too_slow = false;           // it would, but computing it is faster
};

struct CoreProbes {
  ChainKey root;                    // of the request's own blocks: a root, or a gate below the public ones
  std::uint32_t public_blocks = 0;  // the first ones, all of them there
  const CoreLineage* lineage = nullptr;
  std::vector<CoreProbe> blocks;  // the last one: the tail
  // What is there is used before this token; from it on the request computes what is not complete.
  std::uint32_t start = 0;
  std::uint32_t parting = 0;  // CoreRequest::parting
  GroupCounts promised{};     // groups with a window
  // Groups without window:
  GroupCounts slots{};      // to be taken
  GroupCounts pins{};       // evictable parts that will no longer be
  GroupCounts copy_pins{};  // the same for one pass
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
  bool comes(BlockId id, std::uint32_t group, Tier slowest) const;
  bool comes(BlockId id, Tier slowest) const;
  Tier load_tier(BlockId id) const;
  Tier worthwhile(const CoreProbes& probes, Tier slowest) const;
  std::uint64_t block_bytes(BlockId id) const;
  void start_loads(CoreRequest& request, const CoreProbes& probes, Plan& plan);
  void book_loads(const std::vector<BlockId>& fresh, const std::array<std::uint64_t, kTiers>& bytes);
  void start_load(const BlockPin& held, std::array<std::uint64_t, kTiers>& bytes, Plan& plan);
  OperationId start_move(CoreMove move, Plan& plan);
  bool joins(CoreRequest& request, const CorePass& pass);
  static std::size_t link_of(Tier from, Tier to);
  void keep_for_load(BlockId id, std::uint32_t group, std::optional<SlotReservation>& slot);
  void free_replaced(CoreLoad& load);
  void end_read(const CoreMove& move, const MoveOutcome& outcome);
  void miss(BlockId id, Tier from);
  void end_load(CoreMove move, const MoveOutcome& outcome);
  void end_save(CoreMove move, const MoveOutcome& outcome);
  void wish_save(BlockId id, Tier from, bool windows);
  void wish_windows(const CoreRequest& request);
  bool may_write(Tier tier) const;
  // The slowest tier that answers: from where state may be brought back.
  Tier slowest_readable() const;
  bool overdue(Tier tier) const;
  struct PassLoad {
    bool decodes = false;  // somebody waits for its next token
    std::uint32_t rows = 0;
    std::uint64_t context = 0;
  };
  PassLoad load_of(const CorePass& pass) const;
  Nanos patience_of(const CorePass& pass) const;
  bool start_save(BlockId id, Tier from, bool windows, bool ahead, Plan& plan);
  bool add_save_part(CoreMove& move, std::uint32_t group, bool ahead);
  void save(Plan& plan);
  void save_ahead(Tier tier, Plan& plan);

  // core_lookahead.cc
  const std::vector<ChainKey>& keys_of(CoreRequest& request) const;
  void look_ahead(Plan& plan);
  void note_queue_changes();
  void move_window();
  void list_wants(std::uint64_t arrival, CoreWaiting& waiting);
  void unlist_wants(std::uint64_t arrival, CoreWaiting& waiting);
  void set_wanted(BlockId id, const ChainKey& key, std::uint32_t wanted);
  void check_window() const;
  void prefetch(Plan& plan);
  void preload(Plan& plan);
  void preload(CoreRequest& request, Plan& plan);
  bool start_prefetch(BlockId id, Plan& plan);

  // core_recover.cc
  std::optional<BlockPin> open_recovered_parent(const DiskEntry& entry);
  void recover(const RecoveredEntry& found, std::int64_t now, Plan& plan);
  void sweep();

  // core_truncate.cc
  Status truncation_refusal(const Arrival& event) const;
  std::unique_ptr<const CoreLineage> lineage_of(const Arrival& event) const;
  ChainKey original_root(const Arrival& event, std::uint32_t& public_blocks) const;
  BlockId find_parent(const CoreProbes& probes, std::size_t block) const;
  std::optional<Tier> original_tier(BlockId original, Tier slowest) const;
  void find_original(const CoreLineage& lineage, std::uint32_t block, Tier slowest, CoreProbe& found) const;
  void fit_originals(CoreProbes& probes, const CorePass& pass) const;
  std::vector<BlockPin> hold_originals(const CoreProbes& probes);
  void start_rotation(const BlockPin& held, const CoreProbe& found, std::array<std::uint64_t, kTiers>& bytes,
                      Plan& plan);

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
  void check_rotation(const CoreMove& move) const;
  void check_pass(const CorePass& pass) const;
  void check_moves() const;

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
  bool has_host_ = false;
  bool has_disk_ = false;
  bool through_ = true;  // save blocks as they fill
  std::uint32_t saves_max_ = 1;
  BlockIndex index_;

  // The pins and tokens inside are dropped before the index: members end in reverse order.
  std::map<RequestId, std::unique_ptr<CoreRequest>> requests_;
  std::vector<CoreRequest*> running_;  // by arrival
  FairQueue queue_;
  std::optional<RequestId> blocked_head_;            // lacked blocks, and none were let go since
  std::set<std::pair<Nanos, RequestId>> deadlines_;  // of requests that are not ending
  std::deque<CorePass> in_flight_;                   // the first to end first

  std::map<OperationId, CoreMove> moves_;           // in flight
  std::array<std::uint32_t, kTiers> loads_from_{};  // of them those to the device, by source
  std::map<BlockId, CoreLoad> loads_;
  std::array<std::deque<SaveWish>, kTiers> save_wishes_;  // by source
  std::uint32_t saves_in_flight_ = 0;                     // and prefetches
  GroupCounts moving_{};  // groups with a window: device parts that moves hold
  std::array<Nanos, kTiers>
      link_free_at_{};  // when what is being loaded from the tier has come, as predicted
  std::uint64_t moves_started_ = 0;
  LinkBreaker disk_write_link_, disk_read_link_;
  bool recovered_ = false;  // all that the disk has from before is known
  std::vector<BlockPin> recovering_;
  // Looking ahead. All requests that wait, by arrival; those before `window_end_` are in the eviction window.
  std::map<std::uint64_t, CoreWaiting> waiting_;
  std::uint64_t waiting_tokens_ = 0;
  std::uint64_t window_end_ = 0;
  std::uint64_t window_count_ = 0;                                               // of requests in the window
  std::uint64_t wants_ = 0;                                                      // blocks that they list
  std::unordered_map<ChainKey, std::set<std::uint64_t>, ChainKeyHash> wanters_;  // arrivals; never iterated
  std::vector<std::pair<std::uint64_t, RequestId>> queue_changes_;  // who began or ceased to wait
  std::uint32_t prefetch_window_ = 0;                               // requests
  bool prefetched_ = true;                                          // all that they need
  std::uint32_t sweep_at_ = 0;
  Nanos next_sweep_ = 0;
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
