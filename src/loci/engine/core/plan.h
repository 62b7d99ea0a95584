// SPDX-License-Identifier: Apache-2.0
// What goes into the core and what comes out of it: events and plans, as plain values. Both can be
// written to a log and read back (event_log.h); the same events give the same plans.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/memory/disk/disk_entry.h"
#include "loci/memory/miss_reason.h"
#include "loci/memory/state_form.h"
#include "loci/memory/tier.h"
#include "loci/policy/cost_model.h"
#include "loci/policy/restore_plan.h"
#include "loci/policy/truncation.h"

namespace loci {

// Whose state a request's is.
enum class SharingScope : std::uint8_t {
  kTenant,
  // Everybody's: the request is a public prefix. It ends when the state of its prompt is there, without a
  // token (kStop), and that state stays until a Withdraw.
  kPublic,
};

// A tenant: the machine is shared fairly among tenants, and requests share state within one at most.
using SharingGroup = std::string;

// A request whose spans are poisoned in so many passes in a row ends: its state will not come.
inline constexpr std::uint32_t kPoisonedPassesMax = 8;

inline constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

// --- events ---

struct Arrival;
// Whose state a request may use: its tenant's, within one salt. (No tenant's name has a line end.)
std::string sharing_of(const SharingGroup& group, const std::string& salt);
std::string sharing_of(const Arrival& arrival);

struct Arrival {
  RequestId request;  // never seen before
  SharingGroup group;
  std::vector<TokenId> prompt;       // at least one token
  std::uint32_t max_new_tokens = 0;  // at least one
  std::uint32_t min_new_tokens = 0;  // stop tokens don't end the request before
  std::vector<TokenId> stop_tokens;  // end the request when sampled; empty: `ignore_eos`
  Nanos deadline = kNever;
  // Of the tenant, which is the group: its share of the machine, and how many of its requests may wait.
  std::uint32_t weight = 1;
  std::uint32_t queued_max = 0;  // 0: as many as there are places
  SharingScope scope = SharingScope::kTenant;
  // Cuts of the prompt (policy/truncation.h), which is the whole history: in order, each beginning where the
  // last one ended, whole blocks, after the first block. The sequence that is computed is what is left.
  std::vector<TokenRange> dropped;
  // Nobody needs to see a sample of it before the pass that goes on from it is planned: the device samples,
  // by parameters that do not depend on the samples before. Of use with CoreConfig::passes_ahead.
  bool follows = false;
  // Requests share state only where this is the same too; the tenant's share of the machine is one.
  std::string salt;
  // prompt_keys() of this arrival, or nothing; then the core makes them. Making them is most of what an
  // arrival costs, so the engine does it on the thread that submits. Logs do not record them.
  std::vector<ChainKey> keys;
};

// The keys of the whole blocks of a prompt of which nothing is dropped or public.
std::vector<ChainKey> prompt_keys(const ChainKeyHasher& hasher, const Arrival& arrival);

// The client left, or has seen a stop string: the request ends at once; a pass in flight that holds it
// ends first.
struct Cancel {
  RequestId request;
};

// What the grammar of a request says after a sample.
enum class GrammarEnd : std::uint8_t {
  kGoesOn,    // or there is none
  kComplete,  // the reply is whole, and nothing may follow: the request ends
  kFailed,    // the reply is not whole, and nothing can follow: the request ends; there is no sample
};

struct SpanOutcome {
  bool ok = true;                 // false: poisoned; the span is planned again, kPoisonedPassesMax times
  std::optional<TokenId> sample;  // present where the plan asked for one and ok, or there is an end
  GrammarEnd end = GrammarEnd::kGoesOn;
};

struct PassDone {
  OperationId pass;
  // As many as the pass has spans. What is said of a span that goes on from a sample that did not come, or
  // that its request ended with, is ignored.
  std::vector<SpanOutcome> spans;
};

// Time alone: a deadline may have come.
struct Tick {};

// Nothing more is admitted; what is there may go on until `deadline`, then it is cut off.
struct Drain {
  Nanos deadline = kNever;
};

// A public prefix is one no more; its state may be evicted. One that is not there is ignored.
struct Withdraw {
  RequestId prefix;  // of its arrival
};

enum class MoveResult : std::uint8_t {
  kDone,
  kDamaged,  // the source did not verify: it is never tried again
  kFailed,   // the device, the disk or the link failed
  kTooSlow,  // given up
  // Of a save as hidden states: not all rows of the block were captured, or they had to give way since.
  kNotCaptured,
  kGone,  // a store that servers share does not have it any more
};
inline constexpr std::size_t kMoveResults = 6;

struct MoveOutcome {
  OperationId move;
  MoveResult result = MoveResult::kDone;
  Nanos took = 0;  // from its begin at the mover
};

// Moves end in any order, each once.
struct MovesEnded {
  std::vector<MoveOutcome> moves;
};

// What the disk holds from before, parents before children. Until the last batch nothing is written there.
struct Recovered {
  std::vector<RecoveredEntry> entries;
  std::int64_t now = 0;  // milliseconds since 1970: how old the entries are
  bool last = false;
};

// How many of the disk's slots the core may use from now on, by group (of the store: of keys and values, then
// of hidden states). What is in more of them is dropped,
// the least valuable first; what is being read or written just now stays until this is said again.
struct DiskRoom {
  std::vector<std::uint32_t> slots;
};

// What was said is deleted: the state of these tokens goes from every tier at once, but for what the state of
// others hangs from (a beginning that they share). What a request or a move still uses goes when that has
// ended. State under cuts (Arrival::dropped) is not found by these tokens, and stays until it is evicted.
struct Forget {
  SharingGroup group;
  std::string salt;
  std::vector<TokenId> tokens;
};

// What computing and moving costs was measured: from now on all is decided by it. Corrections that were
// learnt of the costs before are forgotten.
struct CostsMeasured {
  CostCurves costs;
};

// The client does not take what the request says: until it does, the request leaves the batch, or the queue.
// Its state stays where it is, as that of a conversation at rest does, and is let go like it; it goes on as
// one that was suspended. Not every pause is granted (CoreConfig::max_queued bounds them), and one of a
// request that is not there is ignored. Who pauses a request resumes or cancels it, in bounded time.
struct Pause {
  RequestId request;
  bool paused = true;  // false: it goes on
};

// What the shared store says of the blocks that a plan asked for (SharedAsk), in their order: bit g is set
// where it has the part of group g. An answer to who waits no more, or of another length, is ignored.
struct SharedAnswer {
  RequestId request;
  std::vector<std::uint8_t> groups;
};

using PeerReadId =
    StrongId<struct PeerReadTag, std::uint64_t>;  // what a peer asks or reads; unique in a process

// Another server of the cluster, a peer, asks which of these blocks this one has. The same step answers
// (Plan::peer_answers).
struct PeerQuestion {
  PeerReadId id;  // never seen before
  std::vector<ChainKey> keys;
};

// A block's parts that a peer wants: of group g where bit g is set.
struct PeerWant {
  ChainKey key;
  std::uint8_t groups = 0;
};

// A peer wants state. Each part is given, by a Move with a PeerPlace, or is said not to come
// (Plan::peer_gone), at the latest at the deadline. What is being computed or loaded just now is waited for.
struct PeerRead {
  PeerReadId id;  // never seen before
  std::vector<PeerWant> wants;
  Nanos deadline = 0;
};

// A peer wants nothing more of its read. Moves that have begun go on.
struct PeerLeft {
  PeerReadId id;
};

// How many slots of the device's pools may hold state that is kept, by group: the machine's memory is short,
// or no more. What is beyond them is evicted, and Plan::give_back names its slots. Requests that run take
// what they need beyond it, but none is admitted beside them there.
struct MemoryRoom {
  std::vector<std::uint32_t> slots;
};

using Event =
    std::variant<Arrival, Cancel, PassDone, Tick, Drain, Withdraw, MovesEnded, Recovered, DiskRoom, Forget,
                 CostsMeasured, Pause, SharedAnswer, MemoryRoom, PeerQuestion, PeerRead, PeerLeft>;

// --- plans ---

enum class FinishReason : std::uint8_t {
  kStop,  // a stop token was sampled, or the grammar lets nothing follow; a public prefix: its state is there
  kLength,  // max_new_tokens, or the context or the memory that public prefixes leave is full
  kCancelled,
  kDeadline,  // the request's deadline, or the drain's
  kFailed,    // kPoisonedPassesMax passes in a row could not read its state
  kGrammar,   // the grammar has failed
};

// What was predicted when it was decided how a request gets its state: until its new tokens are computed,
// from its admission on.
struct RestoreForecast {
  RestoreRule rule = RestoreRule::kAuto;
  Nanos planned = 0;        // as it was decided
  Nanos loading_all = 0;    // had all been loaded that a tier has
  Nanos computing_all = 0;  // had nothing been loaded
};

// Where a prompt's state came from when the request was first admitted; the tokens of all sources together
// are the prompt's.
struct ContextSources {
  std::uint32_t device = 0;
  std::uint32_t host = 0;
  std::uint32_t disk = 0;
  std::uint32_t shared = 0;
  std::uint32_t hidden = 0;                            // of the disk's: that came as hidden states
  std::array<std::uint32_t, kMissReasons> computed{};  // by reason
  Nanos predicted_load = 0;                            // until the last load was to arrive
  Nanos predicted_compute = 0;                         // of what is computed
  RestoreForecast restore;
  std::uint32_t cached() const { return device + host + disk + shared; }
  // What came from the tier.
  std::uint32_t& of(Tier tier) {
    return tier == Tier::kDevice ? device : tier == Tier::kHost ? host : tier == Tier::kDisk ? disk : shared;
  }
};

struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;      // of the prompt, whose state was there when it was first admitted
  std::uint32_t completion_tokens = 0;  // a stop token that ended the request counts
  std::uint32_t suspensions = 0;
};

// A request was first admitted.
struct Started {
  RequestId request;
  std::uint32_t cached_tokens = 0;
  ContextSources sources;
};

struct TokenSampled {
  RequestId request;
  TokenId token;
};

// The request's last output; its id is forgotten.
struct Finished {
  RequestId request;
  FinishReason reason = FinishReason::kStop;
  Usage usage;
};

// The request's only output: it was not admitted. kResourceExhausted (the queue is full; retry_after is
// an estimate), kUnavailable (draining), kInvalidArgument (it can never fit; names the limit).
struct Rejected {
  RequestId request;
  Status status;
  Nanos retry_after = 0;
};

using Output = std::variant<Started, TokenSampled, Finished, Rejected>;

// What the executor must know of each span of the pass, beside what the backend is told.
struct SpanPlan {
  RequestId request;
  bool sample = false;  // sample from the span's last logits
};

// One group's part of a block's move.
struct MovePart {
  std::uint32_t group = 0;
  SlotId from;
  SlotId to;
};

// Which block of what a peer reads.
struct PeerPlace {
  PeerReadId read;
  std::uint32_t index = 0;  // of PeerRead::wants
};

// A block's state goes from one tier to another. Its source stays as it is, and its target is nobody else's,
// until its end is told (MovesEnded). (A shared store has no slots: there the entry's key says what is
// meant.)
struct Move {
  OperationId id;
  Tier from = Tier::kDevice;
  Tier to = Tier::kHost;
  std::vector<MovePart> parts;
  StateForm form = StateForm::kKeysAndValues;  // of what is on the disk
  // To the device: keys are rotated by so many positions on the way, from the source's bits (truncation).
  std::int32_t rotate_by = 0;
  DiskEntry entry;  // what the block is; its key is checked where the source is the disk
  // To Tier::kShared: it is not for the store, but for a peer that reads it.
  std::optional<PeerPlace> peer = std::nullopt;
};

// A request has arrived that lacks these blocks: the shared store is asked which it has. The answer is a
// SharedAnswer; after the time limit nobody waits for it any more.
struct SharedAsk {
  RequestId request;
  std::vector<ChainKey> keys;
  Nanos time_limit = 0;
};

// Of the blocks of a PeerQuestion, in their order: bit g is set where this server has the part of group g, or
// is about to.
struct PeerAnswer {
  PeerReadId id;
  std::vector<std::uint8_t> groups;
};

// Parts that a peer wanted, of the groups whose bits are set, and that it does not get.
struct PeerGone {
  PeerPlace place;
  std::uint8_t groups = 0;
};

// A slot of the device that nobody uses, not even passes and moves in flight.
struct FreedSlot {
  std::uint32_t group = 0;
  SlotId slot;
};

struct Plan {
  // To be run now, after those in flight: at most 1 + CoreConfig::passes_ahead. Their PassDone must follow,
  // in this order. Where one more may begin, a Tick asks for it. A span with a `token_of` is of one token,
  // which is not known here: what that span of the pass before samples.
  std::optional<Pass> pass;
  std::vector<SpanPlan> spans;  // parallel to pass->spans
  // To be begun now, before the pass, in this order; loads before saves.
  std::vector<Move> moves;
  std::vector<DiskNote> notes;
  std::vector<FreedSlot> give_back;  // their memory may go, before anything of a later plan is begun
  std::vector<SharedAsk> asks;
  std::vector<ChainKey> shared_forgets;  // what was said is deleted: the shared store is to forget it too
  std::vector<PeerAnswer> peer_answers;
  std::vector<PeerGone> peer_gone;
  std::vector<Output> outputs;  // in order
  Nanos wake_at = kNever;       // a Tick is wanted then; replaces the last plan's
  bool drained = false;         // draining, and nothing is left
};

}  // namespace loci
