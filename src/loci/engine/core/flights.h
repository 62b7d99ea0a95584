// SPDX-License-Identifier: Apache-2.0
// Passes in flight (docs/decisions/passes-ahead.md): what they were planned to do, and what they keep until
// they have ended. At most one is in flight beside the one that runs.
//
// An example: request a decodes, and a pass ahead is planned behind the one that runs.
//
//     begin(pass 1)       a: token 6, samples token 7                          in flight: 1
//     begin(pass 2)       a: token 7, of the sample that is on the device      in flight: 1 2
//     take_first()        1 has ended
//     judge(pass 1)       its span of a counts, so its token is a's next, and ends a's reply
//     end(pass 1)         what 2 goes on writing, 2 has the right to write now     in flight: 2
//     leave(a)            a is in one pass fewer
//     keep(a)             2 still reads a's blocks and writes behind them: it has them now, and a is gone;
//                         its span of a is *wasted*
//     take_first(), end() nobody reads what a held any more: it goes back to the index
//
// The rules:
//   - A pass has a claim on each block that it fills, other than tails. Where two passes in flight fill the
//     same block the first has the claim, and leaves it to the second when it ends.
//   - A request that ends or is moved leaves to the last pass in flight the blocks that it held, the slots
//     that it had reserved, and what it was promised.
//
// Corner cases:
//   - A pass that is formed without spans does not begin, but its copies must come: a request that goes on
//     from one may find nothing before it in groups with a window. They wait for the next pass.
//   - A slot that no longer belongs to a block, but that a pass has in a table, is *detached*: the last pass
//     in flight keeps it.
//
// It owns the passes in flight and their ids, the claims of the blocks that they fill, and of a request which
// passes have it and whether they count (RequestPasses). It requires that passes end in the order in which
// they began, and that whoever is in one stays, or is kept here, until it has ended. It calls the index, the
// transfers (whether something is being loaded) and the windows, which count what passes still read.
// Invariants, which check_invariants() tests (core.h has all):
//   2. What a span writes is held.
//   3. A copy's source has what is copied; its target is reserved and unseen.
//   4. Before each span all that its tokens see is there, or is brought by the passes before it, or by its
//      own. A span writes nothing that is there.
//   9. Passes end in order, and no more than the configuration says are in flight. What goes on from a sample
//      follows the span that samples it, one token behind it, in the pass before, and takes nothing that is
//      committed.
//   10. A request knows how many passes have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/core_pass.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/transfers.h"
#include "loci/engine/core/windows.h"
#include "loci/memory/block_index.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(spans and copies in flight) where not said otherwise.
class Flights {
 public:
  // All four must outlive it.
  Flights(const CoreConfig& config, BlockIndex& index, const Transfers& transfers, Windows& windows)
      : config_(config),
        index_(index),
        transfers_(transfers),
        windows_(windows),
        group_count_(static_cast<std::uint32_t>(config.groups.size())) {}

  bool empty() const { return in_flight_.empty(); }
  std::size_t size() const { return in_flight_.size(); }
  // True: one more pass may begin.
  bool may_begin() const { return in_flight_.size() <= config_.passes_ahead; }
  // The one that began last; there is one.
  const CorePass& last() const { return in_flight_.back(); }
  std::optional<OperationId> first_id() const;
  std::optional<OperationId> last_id() const;
  // Whose sources are held: of passes in flight, and of one that was put off.
  std::size_t copies() const;

  // --- a pass begins and ends ---

  // A pass to be formed, with the copies of one that was put off.
  CorePass form(std::uint32_t budget);
  // The pass has no spans that count, so it does not begin. The requests that were admitted for it go on from
  // its copies, which wait for the next pass: in groups with a window what is before a copy is not there.
  void put_off(CorePass pass);
  // Gives it an id, the next number. The reference is valid until another pass begins or ends.
  const CorePass& begin(CorePass pass);
  // The first pass in flight has ended with `spans` outcomes: it is in flight no more, and still has what it
  // kept.
  CorePass take_first(OperationId id, std::size_t spans);
  // Says of each of its spans whether it counts (CoreSpan::counts). A span that failed, or read what did not
  // come, is *poisoned*, and so is what its request computes behind it, in passes behind this one too.
  void judge(CorePass& ended, std::span<const SpanOutcome> outcomes);
  // What the pass brought is committed. Lets go of what it kept; its claims go to those behind it that fill
  // the same blocks.
  struct Returned {
    bool any = false;  // something was let go
    // Whose slots they were, which it no longer lends (RequestWindows::lent), and the group of each.
    std::vector<std::pair<RequestId, std::uint32_t>> lent;
  };
  Returned end(CorePass& ended);
  // The first pass that has the request has ended.
  static void leave(CoreRequest& request) {
    RequestPasses& passes = request.passes.change();
    --passes.in_flight;
    if (request.load_phase.is(LoadPhase::kMissed)) request.load_phase.become(LoadPhase::kJoined);
    passes.computes_from[0] = passes.computes_from[1];
    if (passes.in_flight == 0) passes.wasted = false;
  }

  // --- going on behind the pass in flight ---

  // The rest of a prompt may be computed behind what the pass in flight does of it. (With windows a request
  // is promised the slots of one chunk.)
  bool goes_on(const CoreRequest& request) const;
  // True: the last pass in flight leaves something of a prompt that cannot go on before it has ended.
  bool prompt_waits() const;
  // What the last pass in flight leaves of a block that it begins for the request, by its spans or copies.
  std::optional<CorePiece> left_begun(const CoreRequest& request, std::uint32_t block_number) const;
  // `begun`: by the last pass in flight, which has its claim; `pass` takes it over when that has ended.
  static CorePiece go_on_with(CorePiece begun, CorePass& pass);
  // The block that the request had reserved slots for is there now, and passes write to it.
  void open_grown(const CoreRequest& request, BlockId block);

  // --- what does not go on ---

  // The request ends or gives way, and needs no copy that was put off.
  void forget_copies(const CoreRequest& request);
  // The request ends or gives way. What it held stays until the passes in flight have ended, and so does what
  // it was promised.
  void keep(CoreRequest& request);
  // The slot is no block's any more, but a pass in flight may have it in a table. Absent, or nothing is in
  // flight: nothing happens.
  void detach(CoreRequest& request, std::uint32_t group, std::optional<SlotReservation> slot);
  // The same of a slot that a load held, which has ended.
  void detach(std::uint32_t group, SlotReservation slot);

  // --- what the machine above asks ---

  std::uint64_t spans_wasted() const { return spans_wasted_; }
  // Slots that are no block's, those of them that Windows counts as lingering, promises, and the slots that
  // each request lends (RequestWindows::lent).
  struct Kept {
    GroupCounts detached{}, lingering{}, promised{};
    std::map<RequestId, GroupCounts> lent;
  };
  Kept kept() const;
  void visit_pins(const std::function<void(const BlockPin&)>& visit) const;
  // `requests`: all of them. Aborts on a broken invariant. O(requests + spans · blocks).
  void check_invariants(std::span<const CoreRequest* const> requests) const;

 private:
  bool windowed(std::uint32_t group) const { return windows_.windowed(group); }
  void waste(CoreRequest& request);
  void enlist(CorePass& pass, CoreRequest& request) const;
  void check_copies(const CorePass& pass) const;
  void check_following(const CorePass& before, const CorePass& pass) const;
  void check_spans(const CoreRequest& request) const;
  void check_spans(const CoreRequest& request, const CorePass& pass, std::uint32_t group,
                   std::vector<std::uint32_t>& filled) const;

  const CoreConfig& config_;
  BlockIndex& index_;
  const Transfers& transfers_;
  Windows& windows_;
  std::uint32_t group_count_;
  std::deque<CorePass> in_flight_;  // the first to end first
  CorePass put_off_;                // copies, and their claims
  std::uint64_t begun_ = 0;         // passes, ever
  std::uint64_t spans_wasted_ = 0;  // ever
};

}  // namespace loci
