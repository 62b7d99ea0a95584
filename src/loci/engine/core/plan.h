// SPDX-License-Identifier: Apache-2.0
// The core's input and output: events and plans, as plain values. Both can be written to a log and read back
// (event_log.h). The same events give the same plans.
#pragma once

#include <array>
#include <boost/container/static_vector.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/engine/core/arrival_keys.h"
#include "loci/memory/block_entry.h"
#include "loci/memory/miss_reason.h"
#include "loci/memory/state_form.h"
#include "loci/memory/tier.h"
#include "loci/policy/cost_model.h"
#include "loci/policy/hidden_share.h"
#include "loci/policy/restore_plan.h"
#include "loci/policy/truncation.h"

namespace loci {

// To whom a request's state belongs.
enum class SharingScope : std::uint8_t {
  kTenant,
  // To everybody: the request is a public prefix. It ends without a token (kStop) when its prompt has been
  // computed, and the state stays until a Withdraw.
  kPublic,
};

// The machine is shared fairly among tenants, and requests share state only within a tenant.
using TenantId = std::string;

// If a request's spans are poisoned in this many passes in a row it ends, because its state will not come.
inline constexpr std::uint32_t kPoisonedPassesMax = 8;

// --- events ---

// The name of the state that a request may use: that of its tenant with the same salt. (No tenant's name
// contains a line end.)
std::string sharing_of(const TenantId& tenant, const std::string& salt);
std::string sharing_of(const Arrival& arrival);

struct Arrival {
  RequestId request;  // never seen before
  TenantId tenant;
  std::vector<TokenId> prompt;       // at least one token
  std::uint32_t max_new_tokens = 0;  // at least one
  std::uint32_t min_new_tokens = 0;  // before these, stop tokens do not end the request
  std::vector<TokenId> stop_tokens;  // these end the request when sampled; empty with `ignore_eos`
  Nanos deadline = kNever;
  // The tenant's share of the machine, and how many of its requests may wait.
  std::uint32_t weight = 1;
  std::uint32_t queued_max = 0;  // 0: as many as the queue has places
  SharingScope scope = SharingScope::kTenant;
  // Cuts of the prompt (policy/truncation.h), which is the whole history. They are in order, each beginning
  // where the last one ended, in whole blocks, and after the first block. The tokens that are left are
  // computed.
  std::vector<TokenRange> dropped;
  // True: the next pass may be planned before the host has seen this one's sample, because the device samples
  // and its parameters do not depend on earlier samples. Only of use with CoreConfig::passes_ahead.
  bool follows = false;
  // Requests share state only if this is the same too. The tenant's share of the machine does not depend on
  // it.
  std::string salt;
  // arrival_keys() of this arrival. Not made: the core makes them. Making them is most of an arrival's cost,
  // so the engine does it on the thread that submits. Logs do not record them.
  ArrivalKeys keys = {};
};

// The client disconnected, or the reply reached a stop string. The request ends at once; if a pass in flight
// holds it, after that pass.
struct Cancel {
  RequestId request;
};

// The state of a request's grammar after a sample.
enum class GrammarEnd : std::uint8_t {
  kGoesOn,    // it goes on, or there is no grammar
  kComplete,  // the reply is whole, and nothing may follow: the request ends
  kFailed,    // the reply is not whole, and nothing can follow: the request ends; there is no sample
};

struct SpanOutcome {
  bool ok = true;                 // false: poisoned; the span is planned again, kPoisonedPassesMax times
  std::optional<TokenId> sample;  // present if the plan asked for one and ok; may be absent once the grammar
                                  // has ended
  GrammarEnd end = GrammarEnd::kGoesOn;
};

struct PassDone {
  OperationId pass;
  // One for each span of the pass. The outcome of a span is ignored if it continues from a sample that did
  // not come, or with which its request ended.
  std::vector<SpanOutcome> spans;
  Projected projected = {};  // in the pass, of what came as hidden states
};

// Only time has passed: a deadline may have come.
struct Tick {};

// No request is admitted any more. Those that are there may go on until `deadline` and are then cut off.
struct Drain {
  Nanos deadline = kNever;
};

// Releases a public prefix: it is no longer public, and its state may be evicted. Ignored if there is no such
// prefix.
struct Withdraw {
  RequestId prefix;  // of its arrival
};

enum class MoveResult : std::uint8_t {
  kDone,
  kDamaged,  // the source did not verify and is never tried again
  kFailed,   // the device, the disk or the link failed
  kTooSlow,  // given up
  // Only for a save as hidden states: not all rows of the block were captured, or they had to give way.
  kNotCaptured,
  kGone,  // the shared store does not have it any more
};
inline constexpr std::size_t kMoveResults = 6;
// Why what a load of it should have brought is computed.
constexpr MissReason miss_reason_of(MoveResult result) {
  return result == MoveResult::kTooSlow ? MissReason::kTooSlow
         : result == MoveResult::kGone  ? MissReason::kEvicted
                                        : MissReason::kDamaged;
}

struct MoveOutcome {
  OperationId move;
  MoveResult result = MoveResult::kDone;
  Nanos took = 0;     // since its beginning at the mover
  bool came = false;  // of kTooSlow: a part of it had come, so the link is not silent
};

// Moves end in any order, each once.
struct MovesEnded {
  std::vector<MoveOutcome> moves;
};

// Entries that the disk holds from before, parents before children. Until the last batch nothing is written
// to the disk.
struct Recovered {
  std::vector<RecoveredEntry> entries;
  std::int64_t now = 0;  // milliseconds since 1970, to tell the entries' ages
  bool last = false;
};

// How many of the disk's slots the core may use from now on, by group of the store: of keys and values, then
// of hidden states, each as if the other form had none (slots_beside()). Entries beyond that are dropped, the
// least valuable first. Those that are just being read or written stay until the next such event.
struct DiskRoom {
  std::vector<std::uint32_t> slots;
};

// A conversation is deleted: the state of these tokens is dropped from every tier, except a beginning that
// other sequences share. State that a request or a move still uses is dropped after that has ended. State
// that was computed after cuts (Arrival::dropped) is not found by these tokens and stays until it is evicted.
struct Forget {
  TenantId tenant;
  std::string salt;
  std::vector<TokenId> tokens;
  ForgetKeys keys = {};  // forget_keys(); as of an arrival
};

// The costs of computing and moving were measured. From now on they are the basis of all decisions;
// corrections of the old costs are forgotten.
struct CostsMeasured {
  CostCurves costs;
};

// The client does not read the request's reply: until it does, the request leaves the batch or the queue. Its
// state stays where it is, is saved and may be evicted like that of a conversation at rest. Later the request
// continues like one that has arrived: it may wait for the end of its sequence first. Not every pause is
// granted (CoreConfig::max_queued bounds them), and a pause of an unknown request is ignored. Whoever pauses
// a request must resume or cancel it within a bounded time.
struct Pause {
  RequestId request;
  bool paused = true;  // false: it goes on
};

// The answer about the blocks of a SharedAsk, in their order: bit g is set if the part of group g can be read
// from the shared tier, and bit kLayerGroupsMax + g too if a peer gives it. Ignored if the request no longer
// waits, or if the length differs.
struct SharedAnswer {
  RequestId request;
  std::vector<std::uint8_t> groups;
};

using PeerReadId =
    StrongId<struct PeerReadTag, std::uint64_t>;  // names a question or a read of a peer; unique in a process

// Another server of the cluster, a peer, asks which of these blocks this one has. The same step answers
// (Plan::peer_answers).
struct PeerQuestion {
  PeerReadId id;  // never seen before
  std::vector<ChainKey> keys;
};

// The parts of a block that a peer wants: that of group g if bit g is set.
struct PeerWant {
  ChainKey key;
  std::uint8_t groups = 0;
};

// The layers of a block come to a peer in so many rounds at most.
inline constexpr std::uint8_t kPeerRoundsMax = 8;
constexpr bool is_peer_rounds(std::uint32_t rounds) { return rounds >= 1 && rounds <= kPeerRoundsMax; }

// A peer reads state, in rounds: the first layers of all blocks, then the next ones of all. By the deadline
// each part is either given, by Moves with a PeerPlace, or reported as gone (Plan::peer_gone); one of which
// only its first layers have come may still be gone. Parts that are just being computed or loaded are waited
// for.
struct PeerRead {
  PeerReadId id;  // never seen before
  std::vector<PeerWant> wants;
  Nanos deadline = 0;
  std::uint8_t rounds = 1;  // is_peer_rounds()
};

// A peer has given up its read. Moves that have begun go on.
struct PeerLeft {
  PeerReadId id;
};

// How many slots of the device's pools may hold kept state, by group, because the machine's memory has become
// short or is no longer so. State beyond that is evicted, and Plan::give_back names its slots. Running
// requests may take more if they need it, but then no other request is admitted.
struct MemoryRoom {
  std::vector<std::uint32_t> slots;
};

using Event =
    std::variant<Arrival, Cancel, PassDone, Tick, Drain, Withdraw, MovesEnded, Recovered, DiskRoom, Forget,
                 CostsMeasured, Pause, SharedAnswer, MemoryRoom, PeerQuestion, PeerRead, PeerLeft>;

// --- plans ---

enum class FinishReason : std::uint8_t {
  kStop,    // a stop token was sampled, or the grammar allows nothing more; for a public prefix: its state is
            // there
  kLength,  // max_new_tokens is reached, or the context is full, or the memory that public prefixes leave
  kCancelled,
  kDeadline,  // the deadline of the request, or of the drain, has come
  kFailed,    // kPoisonedPassesMax passes in a row could not read its state
  kGrammar,   // the grammar has failed
};

// The predicted time from a request's admission until its new tokens are computed, as of the decision how it
// gets its state.
struct RestoreForecast {
  RestoreRule rule = RestoreRule::kAuto;
  Nanos planned = 0;        // with the plan that was chosen
  Nanos loading_all = 0;    // if everything that a tier has were loaded
  Nanos computing_all = 0;  // if nothing were loaded
};

// Where a prompt's state comes from. The tokens of all sources add up to the prompt.
struct ContextSources {
  std::uint32_t device = 0;
  std::uint32_t host = 0;
  std::uint32_t disk = 0;
  std::uint32_t shared = 0;
  std::uint32_t hidden = 0;                            // of the disk's tokens, those that came as hidden
                                                       // states
  std::array<std::uint32_t, kMissReasons> computed{};  // by reason
  Nanos predicted_load = 0;                            // time until the last load arrives
  Nanos predicted_compute = 0;                         // time of computing
  RestoreForecast restore;
  std::uint32_t cached() const { return device + host + disk + shared; }
  // Tokens that came from the tier.
  std::uint32_t& of(Tier tier) {
    return tier == Tier::kDevice ? device : tier == Tier::kHost ? host : tier == Tier::kDisk ? disk : shared;
  }
};

struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;      // tokens of the prompt whose state was there when the request was
                                        // first admitted, and came
  std::uint32_t completion_tokens = 0;  // counts a stop token that ended the request
  std::uint32_t suspensions = 0;
};

// A request is admitted for the first time. What was found in lower tiers is still to be loaded, and that may
// fail.
struct Started {
  RequestId request;
  std::uint32_t cached_tokens = 0;
  ContextSources sources;
};

// Where the prompt's state has come from: what failed to come counts as computed. After Started, once, before
// the first token, or before Finished if there is none.
struct Restored {
  RequestId request;
  ContextSources sources;
};

struct TokenSampled {
  RequestId request;
  TokenId token;
};

// The request's last output; the core does not know its id any more.
struct Finished {
  RequestId request;
  FinishReason reason = FinishReason::kStop;
  Usage usage;
};

// The request's only output: it was refused. kResourceExhausted (the queue is full; retry_after is an
// estimate), kUnavailable (draining), kInvalidArgument (it can never fit; names the limit).
struct Rejected {
  RequestId request;
  Status status;
  Nanos retry_after = 0;
  // True: the core would take the same request at another time.
  bool may_come_again() const {
    return status.code() == StatusCode::kResourceExhausted || status.code() == StatusCode::kUnavailable;
  }
};

using Output = std::variant<Started, Restored, TokenSampled, Finished, Rejected>;

// What the executor must know of each span, beside what the backend gets.
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

// One for each group at most. Thousands of moves may begin in one step; their parts lie in them.
using MoveParts = boost::container::static_vector<MovePart, kLayerGroupsMax>;

// Rounds [begin, end) of `of`. Of a model with n layers, round t has layers [n t / of, n (t + 1) / of).
struct PeerRounds {
  std::uint8_t begin = 0;
  std::uint8_t end = 1;
  std::uint8_t of = 1;
};

// Which block of a peer's read, and which of its layers.
struct PeerPlace {
  PeerReadId read;
  std::uint32_t index = 0;  // of PeerRead::wants
  PeerRounds rounds = {};   // of what is gone: all that has not come
};

// Moves a block's state from one tier to another. Until its end is reported (MovesEnded) the source stays
// unchanged, and nobody else uses the target. (A shared store has no slots; there the entry's key names the
// block.)
struct Move {
  OperationId id;
  Tier from = Tier::kDevice;
  Tier to = Tier::kHost;
  MoveParts parts;
  StateForm form = StateForm::kKeysAndValues;  // the form on the disk
  // For a move to the device: keys are rotated by this many positions on the way, from the source's bits
  // (truncation).
  std::int32_t rotate_by = 0;
  // Of moves to the device: those of a plan with the same value come together, layer by layer, and before
  // those that stand behind them.
  OperationId together;
  // Of a load: it is given up after so long, its waiting included, but not before MoverOptions::load_limit,
  // nor before others that come together with it.
  Nanos time_limit = 0;
  BlockEntry entry;  // which block it is; if the source is the disk, its key is checked
  // If present, with Tier::kShared: the move is not for the store, but for a peer that reads the block.
  std::optional<PeerPlace> peer = std::nullopt;
};

// Asks the shared store which of these blocks it has; a request has arrived that lacks them. The answer is a
// SharedAnswer. After the time limit nobody waits for it any more.
struct SharedAsk {
  RequestId request;
  std::vector<ChainKey> keys;
  Nanos time_limit = 0;
};

// The answer about the blocks of a PeerQuestion, in their order: bit g is set if this server has the part of
// group g, or will soon have it.
struct PeerAnswer {
  PeerReadId id;
  std::vector<std::uint8_t> groups;
};

// Parts that a peer wanted and does not get, of the groups whose bits are set.
struct PeerGone {
  PeerPlace place;
  std::uint8_t groups = 0;
};

// A slot of the device that nobody uses, not even passes and moves in flight.
struct FreedSlot {
  std::uint32_t group = 0;
  SlotId slot;
};

// What a deletion has left; nobody reads it.
struct SpentText {
  std::shared_ptr<const std::vector<TokenId>> tokens;
  std::vector<ChainKey> names;
};

struct Plan {
  // A pass to run now, after those in flight; there are at most 1 + CoreConfig::passes_ahead. A PassDone must
  // follow for each, in this order. If one more may begin, a Tick asks for it. A span with a `token_of` has
  // one token, which is not known here: the sample of that span of the pass before.
  std::optional<Pass> pass;
  std::vector<SpanPlan> spans;  // parallel to pass->spans
  // Moves to begin now, before the pass, in this order; loads come before saves.
  std::vector<Move> moves;
  std::vector<RecordChange> record_changes;
  std::vector<FreedSlot> give_back;  // their memory may be given back, before anything of a later plan begins
  std::vector<SharedAsk> asks;
  std::vector<ChainKey> shared_forgets;  // blocks of deleted conversations, which the shared store must
                                         // forget too
  std::vector<PeerAnswer> peer_answers;
  std::vector<PeerGone> peer_gone;
  // From now on these blocks are captured, to be saved as hidden states; absent: those as before.
  std::optional<HiddenShare> hidden_share;
  // Texts of deletions, and their names, that the core needs no more. To give back the memory of a long text
  // takes a millisecond or more: whoever takes the plan does it where no step waits.
  std::vector<SpentText> spent;
  std::vector<Output> outputs;  // in order
  Nanos wake_at = kNever;       // when a Tick is wanted; replaces that of the last plan
  bool drained = false;         // the core is draining, and nothing is left
};

}  // namespace loci
