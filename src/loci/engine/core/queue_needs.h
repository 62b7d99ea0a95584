// SPDX-License-Identifier: Apache-2.0
// What the queue needs (AttentionStore §3.3): the blocks of waiting requests are evicted last, and those that
// only the disk has are brought into host memory before their turn comes.
//
// An example: three requests wait, whose state is A B, A C and D; host memory has room for two of them.
//
//     wanted    A: 0   B: 0   C: 1   D: 2     whoever is admitted before another one needs a block sooner
//     prefetch  A B C, as far as they are on the disk alone and transfers may begin
//
// The window has the requests that are expected to be admitted first (policy/admission_forecast.h), as many
// as the slower tiers can hold the state of, at most PolicySet::lookahead_requests of them. A session's size
// is the mean over the known ones. The window changes as requests come and go and tenants are served. A
// request's blocks are looked up and marked when it enters the window, and unmarked when it leaves. A look
// handles about kMarksInALook blocks, and the next one continues. The first few requests look again whenever
// the queue changes, because blocks that they lacked may be there by now. For a history that was cut, the
// originals from which blocks are rotated are wanted instead of the blocks.
//
// In a model with windows a request goes on from a place at which all windows are whole (places.h), the last
// one as far as is known. All that is known of it is wanted in groups that see all; in groups with a window
// what the place sees, once it is found. (Of several windows the widest counts.)
//
//     all              w   w   w   w   w      The disk has the windows behind which two turns ended (K). It
//     window of 64     K   K   .   w   w      goes on behind the second, so nobody keeps those of the first.
//
// A block is marked with the place of the first request that wants it: a number that grows with the turn that
// the request was expected to have when it entered, and with the turns of its tenant. So it is marked only
// once. But the turns of different tenants shift against each other, and distances change. So in each look
// one of the first few requests gets a new place, if it stands after a request whose turn begins only when
// its own has ended.
//
// It owns the list of waiting requests and the blocks that they want; the index has the place of each block
// (EvictionFacts::wanted). It requires that queue_changed() is called whenever a request begins or ceases to
// wait, and that look() follows before the next call with the same id. It calls the index, the transfers, the
// queue, the places, the restores (from where a request may load) and, for keys, the prefixes. Invariants,
// which check_invariants() tests (core.h has all):
//   10. The window is that of the forecast, and what waits is there. Every block that the window wants, and
//       every mark that was not given up yet, is among those that are wanted. Sums are right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/place_order.h"
#include "loci/engine/core/places.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/probes.h"
#include "loci/engine/core/restores.h"
#include "loci/engine/core/transfers.h"
#include "loci/memory/block_index.h"
#include "loci/memory/key_map.h"
#include "loci/policy/admission.h"
#include "loci/policy/admission_forecast.h"

namespace loci {

// For so many requests the core's tables have room from the start: a table that grew would move all of them
// in one step, and memory that the system gives for the first time costs a step.
inline constexpr std::size_t kReservedRequests = std::size_t{1} << 16;

// Thread-compatible; used by whoever steps the core.
class QueueNeeds {
 public:
  // A request, if it waits; null: it runs or is gone.
  using FindWaiting = std::function<CoreRequest*(RequestId)>;

  // All seven must outlive it.
  QueueNeeds(const CoreConfig& config, BlockIndex& index, Transfers& transfers, const Prefixes& prefixes,
             const Places& places, const Restores& restores, FairQueue& queue);

  // Says that this request may have begun or ceased to wait.
  void queue_changed(std::uint64_t arrival, RequestId id) { changes_.emplace_back(arrival, id); }
  // Says that the tenant, some of whose requests wait, was given tokens. `time`: its virtual time now.
  void served(const std::string& tenant, std::uint64_t time);
  // Processes the changes. Costs O((changes + the few that look again + kMarksInALook) · log). Requests that
  // want nothing that the index knows cost no mark, so a look may process many of them. `pass_waits`: this
  // step has formed a pass, which begins when the step ends; so few blocks are marked.
  void look(const FindWaiting& find, bool pass_waits);
  // What the request wants for its block `number` is being rotated into this one: it wants that one too.
  // Nothing happens if it is not in the window. O(log(blocks of the request)).
  void rotated(std::uint64_t arrival, std::uint32_t number, BlockId block);
  // True: the last look or prefetch left work to the next one, which should come soon.
  bool has_more() const { return unfinished_ || looks_ran_out_; }
  // Brings wanted blocks from the disk to host memory, as far as transfers may begin. Continues where it
  // stopped.
  void prefetch();

  void check_invariants(const FindWaiting& find) const;

 private:
  using Want = std::pair<BlockId, ChainKey>;  // the block and its key: the id may be another one's by now
  using Wants = std::vector<Want>;
  // The places of those who want a block, at least one: most blocks are wanted by one request.
  struct Wanters {
    QueuePlace first{};  // which the block is marked with
    bool first_sees = false;
    std::uint32_t seeing = 0;           // of them those whose windows see it
    std::map<QueuePlace, bool> others;  // and whether theirs do
  };
  // (The fields that each look reads come first, so that they share one cache line and the request need not
  // be read.)
  struct Waiting {
    CoreRequest* request = nullptr;  // as long as it waits
    RequestId id;
    std::uint32_t known = 0;  // blocks of it that the index had when it came
    bool has_lineage = false;
    bool in_window = false;
    // In the window:
    bool is_listed = false;  // `goes_on` is where it goes on, as far as is known
    bool lists_all = false;  // its last block is in `wants`
    std::uint32_t place = 0;
    // With windows, in blocks:
    std::uint32_t goes_on = 0;    // the last place before the next one
    std::uint32_t window_to = 0;  // marked up to here
    // BlockIndex::names_made() when the index lacked the next one; 0: it was not looked for.
    std::uint64_t names_seen = 0;
    // Its blocks in the index, or their originals, up to the first missing one; and how many of them have
    // been considered for a prefetch.
    Wants wants;
    std::size_t prefetched = 0;
    std::size_t prefetched_again = 0;       // where it is in QueueNeeds::again_
    std::map<std::uint32_t, Want> rotated;  // and the blocks that these have become, by their numbers
    // With windows, in blocks:
    PlaceWalk walk;                 // over those that are listed
    std::uint32_t window_of = 0;    // the place whose windows are marked up to `window_to`
    std::uint32_t window_from = 0;  // nothing is marked before it
  };
  using Waitings = std::unordered_map<std::uint64_t, Waiting>;  // by arrival

  bool still_there(const Want& wanted) const;
  void set_wanted(const Want& wanted, const Wanters& wanters);
  std::uint32_t first_seen(std::uint32_t place) const;
  void find_place(Waiting& waiting, BlockId block) const;
  void mark_windows(Waitings::iterator entry);
  GroupSet wanted_groups(const Waiting& waiting, std::size_t number) const;
  std::uint64_t cost_of(const CoreRequest& request, std::uint32_t known) const;
  void take_changes(const FindWaiting& find);
  bool take_turns();
  void apply_window();
  std::uint64_t slots(Tier tier, std::uint32_t group) const;
  void fill_window();
  void list_rest();
  void look_again();
  void put_in_order();
  void enter(Waitings::iterator entry, std::uint32_t place);
  void leave(Waitings::iterator entry);
  void mark(const Want& wanted, const QueuePlace& place, bool sees);
  void unmark(const Want& wanted, const QueuePlace& place);
  void unmark_left(std::size_t most);
  std::uint32_t place_of_turn(std::uint64_t turn) const;
  std::uint32_t place_for(std::uint64_t arrival);
  void read_ahead(std::span<const ChainKey> keys) const;
  void read_next_ahead(const Waiting& waiting) const;
  bool may_list(const Waiting& waiting) const;
  void list_wants(Waitings::iterator entry);
  bool prefetch_all(std::set<QueuePlace>& places, std::size_t Waiting::* done, std::size_t& looks);

  const CoreConfig& config_;
  BlockIndex& index_;
  Transfers& transfers_;
  const Prefixes& prefixes_;
  const Places& starts_;  // to go on from; places_ are those in the queue
  const Restores& restores_;
  FairQueue& queue_;
  std::vector<std::pair<std::uint64_t, RequestId>> changes_;  // since look()
  std::set<std::string> moved_;  // tenants whose order may have changed since then
  Waitings waiting_;
  AdmissionForecast forecast_;
  PlaceOrder places_;                  // of the window
  std::set<QueuePlace> unprefetched_;  // of them those that want something not looked at for a prefetch
  std::map<QueuePlace, Wants> left_;   // places that nobody has any more: blocks marked with them
  std::set<QueuePlace> again_;         // that are looked at for a prefetch once more, behind those
  std::set<QueuePlace> unlisted_;      // of the window those that may want more than is marked
  std::uint64_t first_turn_ = 0;       // which has the place kFirstPlace
  std::uint64_t wants_ = 0;            // blocks that the window lists
  std::size_t marks_left_ = 0;         // in this look
  bool unfinished_ = false;            // the last look left something to the next
  bool looks_ran_out_ = false;         // the last prefetch did
  KeyMap<Wanters> wanters_;            // of each block
  bool prefetched_ = true;             // all that they need
};

}  // namespace loci
