// SPDX-License-Identifier: Apache-2.0
// The core: one deterministic state machine that admits, schedules, places and evicts. It owns no
// thread, reads no clock, touches no byte of state and does no I/O. step(now, event) → plan.
//
// Scheduling. One batch for prompts and decodes (Pensieve §4.2). Each pass takes, within a budget of tokens,
// one token of every running decode and then chunks of prompts: fair among tenants by weight, first come
// first served inside one (docs/decisions/fairness.md). A request's missing ranges (holes of its prefix, then
// its new tokens) are taken from the left, one span a range. Admission keeps a share of the blocks free for
// running decodes; if they run out nevertheless, the latest arrival is suspended: its blocks go back to the
// index, where they may be evicted, and it returns to the head of the queue (Pensieve §4.3.5; lost state is
// computed again on its return).
//
// Public prefixes. The blocks of a prompt that arrived as public are shared by all tenants and stay, up to
// half of each pool, until they are released. A lookup follows public blocks first; later blocks are behind a
// gate of the tenant's own (block_index.h). Only the prefix's own request writes to public blocks, and
// lookups see only whole prefixes, so nothing that tenants do shows in them.
//
// Passes ahead (docs/decisions/passes-ahead.md). With CoreConfig::passes_ahead a second pass may be planned
// while one is in flight: it continues from the samples of the first, on the device. The caller asks for it
// by a Tick.
//
// The ends of sequences, of less than a block, are saved too. They are loaded before a request that continues
// them is admitted (docs/decisions/partial-blocks.md).
//
// State of finished and suspended requests stays in the index until its memory is needed.
//
// Layer groups (docs/decisions/layer-groups.md). A group without a window needs the state of all tokens, a
// group with a window only that of the window before the next token. A request continues at a place at which
// every group has the state that the next token sees: the last one, or an earlier one that the plan prefers.
// From there on everything is computed. So a token's state always comes from its whole context. A request
// lets go of blocks that no later token of it sees. At admission it is promised the slots that its window and
// a chunk need, never more than the pool has, so windows never run out.
//
// Invariants, numbered once for the core and for all that it owns. Each owner's header lists those that its
// check_invariants() tests; core_check.cc tests what none can test alone.
//   1. Each slot of each pool is free or has exactly one holder. What is promised fits the pool.
//   2. What a running request or a pass needs is held, and every pin has its holder. What is held is neither
//      evicted nor overwritten.
//   3. A transfer holds its source and has reserved its target, which nobody sees before it is whole.
//   4. State is served only under its own key, at its own position, and as far as it has come. A block has
//      one writer at a time.
//   5. A request's block table spells its tokens: block by block, the keys are those of its own tokens.
//   6. A node without state, pins or descendants does not exist.
//   7. Nobody waits for what nothing will bring; queues, windows and retries have bounds.
//   8. The same events give the same plans (replaying an event log tests it).
//   9. Passes end in the order in which they began, and what goes on from a sample follows what samples it.
//   10. What is counted or remembered beside its source agrees with it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/engine/core/plan.h"
#include "loci/memory/block_place.h"
#include "loci/policy/cost_model.h"
#include "loci/policy/hidden_share.h"
#include "loci/policy/policy_set.h"

namespace loci {

// Layers that share block tables, as the core sees them.
struct CoreGroup {
  std::uint32_t window = 0;       // a token sees itself and the window - 1 before it; 0: all before it
  std::uint32_t block_count = 0;  // slots of its device pool
  std::uint32_t host_blocks = 0;  // slots of its host pool; 0: none
  std::uint32_t disk_blocks = 0;  // slots on disk; 0: none
  // How many parts are remembered as being in a shared store or at a peer; 0: there is neither.
  std::uint32_t shared_blocks = 0;
  std::uint64_t block_bytes = 0;  // bytes of a block's part; 0 without lower tiers
  friend bool operator==(const CoreGroup&, const CoreGroup&) = default;
};

// Blocks that the disk holds as hidden states (HCache §3.2); only for models without windows, and without a
// tier of host memory.
struct CoreHidden {
  // Slots on disk, if none of the group's were used, and so the other way around (slots_beside()); 0: there
  // are none.
  std::uint32_t disk_blocks = 0;
  std::uint64_t block_bytes = 0;  // less than the group's
  HiddenShare share;              // of the blocks that are saved as they fill; at first, if it follows
  bool follows = false;           // what loads, passes and projecting take (share_follower.h)
  friend bool operator==(const CoreHidden&, const CoreHidden&) = default;
};

struct CoreConfig : PolicySet {
  std::vector<CoreGroup> groups;  // 1 to kLayerGroupsMax, the widest window first, as the backend's
  std::uint32_t layers = 0;
  std::uint32_t context_tokens = 0;      // the most that one sequence may hold
  std::uint32_t max_batch_tokens = 512;  // budget of a pass
  Nanos pass_time = kNever;              // time limit of a pass while decodes wait for it
                                         // (policy/pass_budget.h)
  std::uint32_t max_running = 64;        // requests in a batch
  std::uint32_t max_queued = 256;        // requests that wait; beyond: Rejected
  std::uint32_t passes_ahead = 0;        // in flight beside the one that runs: 0 or 1
  std::array<std::uint8_t, 16> model_fingerprint{};
  std::array<std::uint8_t, 32> chain_secret{};  // keys the hash of the chain keys
  std::uint32_t saves_max = 32;                 // saves in flight; further ones are dropped, never waited for
  std::uint32_t hole_records = 0;               // of the disk
  // True: whole blocks are also written to the shared store; false: there is none, and only peers are asked.
  bool writes_shared = true;
  // In how many rounds peers bring the layers of what is read from them (RestoreProblem::shared_rounds); 0:
  // there are no peers, and layers come one by one.
  std::uint32_t shared_rounds = 0;
  CoreHidden hidden;
  Nanos state_ttl = kNever;  // state that nobody has used for this long is dropped
  CostCurves costs;
  std::uint64_t seed = 0;
};

// One group's pool.
struct PoolStats {
  std::uint32_t blocks_total = 0;
  std::uint32_t blocks_free = 0;    // hold nothing
  std::uint32_t blocks_pinned = 0;  // needed by running requests
  std::uint32_t blocks_held = 0;    // blocks for which the system holds memory (on a CPU)
  std::uint32_t blocks_room = 0;    // blocks that may hold kept state: MemoryRoom
};

// A tier's slots, of all groups. (Of the disk, those in use are of either form, which differ in size; the
// free ones are counted as keys and values.)
struct TierStats {
  std::uint32_t slots = 0;
  std::uint32_t free = 0;       // hold nothing
  std::uint32_t evictable = 0;  // hold state that nobody uses now
  std::uint64_t evictions_total = 0;
};

// The links over which state moves.
enum class CoreLink : std::uint8_t {
  kHostLoad,
  kDiskLoad,
  kHostSave,
  kDiskSave,
  kPrefetch,
  kSharedLoad,
  kSharedSave,
  kPeerServe
};
inline constexpr std::size_t kCoreLinks = 8;
constexpr std::string_view core_link_name(CoreLink link) {
  constexpr std::string_view kNames[kCoreLinks] = {"host_load", "disk_load",   "host_save",   "disk_save",
                                                   "prefetch",  "shared_load", "shared_save", "peer_serve"};
  return kNames[static_cast<std::size_t>(link)];
}
struct LinkStats {
  std::array<std::uint64_t, kMoveResults> ended{};  // by MoveResult
};

// A prefix that all tenants share.
struct PublicPrefix {
  RequestId id;  // id of its arrival
  std::uint32_t tokens = 0;
  std::uint32_t blocks = 0;
};

struct CoreStats {
  std::uint32_t running = 0;
  std::uint32_t queued = 0;
  std::uint32_t paused = 0;                        // requests whose clients do not read
  std::uint32_t blocks_total = 0;                  // of all groups, as the next two
  std::uint32_t blocks_free = 0;                   // hold nothing
  std::uint32_t blocks_pinned = 0;                 // needed by running requests
  std::array<PoolStats, kLayerGroupsMax> pools{};  // by group
  std::uint32_t blocks_public = 0;                 // blocks of each group that public prefixes hold
  // Of prompts whose first token was sampled, or whose requests have ended after they were admitted.
  std::uint64_t tokens_cached_total = 0;  // whose state was reused, ever
  std::uint64_t tokens_prompt_total = 0;
  std::uint64_t tokens_generated_total = 0;
  std::uint64_t tokens_computed_total = 0;  // rows of all passes
  std::uint64_t evictions_total = 0;        // blocks
  std::uint64_t suspensions_total = 0;
  std::uint64_t rejections_total = 0;  // the queue was full, or the core stops; no invalid requests
  std::uint64_t passes_total = 0;
  std::uint64_t passes_ahead_total = 0;  // of these passes, those planned while another was in flight
  std::uint64_t spans_wasted_total = 0;  // spans that continued from a sample after which nothing followed
  std::array<TierStats, kTiers> tiers{};
  std::array<LinkStats, kCoreLinks> moves{};
  std::uint32_t moves_in_flight = 0;
  std::uint32_t saves_waiting = 0;
  std::uint32_t peers_waiting = 0;        // blocks that peers want and whose moves have not begun
  std::uint64_t saves_dropped_total = 0;  // too many waited
  std::uint32_t before_queue = 0;    // requests that wait for the shared store, or for a block's first tokens
  std::uint32_t hidden_percent = 0;  // of the blocks, that are saved as hidden states from now on
  std::uint64_t hidden_saved_total = 0;   // blocks, as hidden states
  std::uint64_t hidden_loaded_total = 0;  // likewise
  std::uint64_t partial_saved_total = 0;  // the ends of sequences
  bool recovers = false;                  // entries of the disk are still taken over
  std::uint64_t recovered_total = 0;      // entries of the disk that were taken over
  std::uint64_t orphans_total = 0;        // entries that were not: their parents are missing, or they are too
                                          // old
  std::uint64_t forgets_waiting = 0;      // Forget events that wait for users of their state
  std::uint64_t given_back_total = 0;     // blocks whose memory went back to the system
  std::uint64_t forgets_given_up_total = 0;  // of too many waiting ones; their state is evicted in time
  // Of the same prompts tokens by the tier that their state came from, and computed ones by reason.
  std::array<std::uint64_t, kTiers> tokens_from_total{};
  std::array<std::uint64_t, kMissReasons> tokens_missed_total{};
};

// Thread-compatible: one thread owns it.
class Core {
 public:
  // Errors: kInvalidArgument naming the field of the configuration.
  static Result<Core> make(const CoreConfig& config);
  Core(Core&&) noexcept;
  Core& operator=(Core&&) noexcept;
  ~Core();

  // Events for a request that has ended (a late Cancel) are ignored.
  Plan step(Nanos now, Event event);

  CoreStats stats() const;
  std::vector<PublicPrefix> public_prefixes() const;
  // What is public, for arrival_keys() and forget_keys(). Another one after each change.
  std::shared_ptr<const PublicChains> public_chains() const;
  // Where blocks are, for others (BlockIndex::watch_places()). It is no part of plans: a replay needs none.
  void watch_places();
  std::vector<BlockPlace> take_moved();
  // Tests the invariants of every owner; aborts on a broken one.
  void check_invariants() const;

 private:
  class State;
  explicit Core(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace loci
