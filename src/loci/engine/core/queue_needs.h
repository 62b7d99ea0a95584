// SPDX-License-Identifier: Apache-2.0
// What the queue needs (AttentionStore §3.3): the blocks of waiting requests are evicted last, and what of
// them is on the disk alone is brought into host memory before their turn comes.
//
// An example: three requests wait, whose state is A B, A C and D; host memory has room for two of them.
//
//     wanted    A: 0   B: 0   C: 1   D: 2     whoever came before another one needs a block sooner
//     prefetch  A B C, as far as they are on the disk alone and transfers may begin
//
// The window has the first requests whose state the slower tiers can hold, at most
// PolicySet::lookahead_requests of them. How much that is of a session is the mean over those that are known.
// It is kept as requests come and go: a request's blocks are looked up when it enters and given up when it
// leaves; the first few look again whenever the queue changes, as what they lacked may be there by now. A
// place is the number of the request's arrival, which stays as others leave the queue. Of a history that was
// cut, what its blocks are rotated from is wanted in their place.
//
// It owns who waits and what they want; the index knows the place of each block (EvictionFacts::wanted). It
// requires that queue_changed() is said whenever a request begins or ceases to wait, and that look() follows
// before the next one with the same id. It calls the index, the transfers and, for keys, the prefixes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/transfers.h"
#include "loci/memory/block_index.h"

namespace loci {

// Thread-compatible: the core's thread has it.
class QueueNeeds {
 public:
  // A request, if it waits; null: it runs or is gone.
  using FindWaiting = std::function<CoreRequest*(RequestId)>;

  // All four outlive it.
  QueueNeeds(const CoreConfig& config, BlockIndex& index, Transfers& transfers, const Prefixes& prefixes);

  // This request may have begun or ceased to wait.
  void queue_changed(std::uint64_t arrival, RequestId id) { changes_.emplace_back(arrival, id); }
  // Takes up what was said to have changed. O((changes + the few that look again) · their blocks · log).
  void look(const FindWaiting& find);
  // Brings to host memory what is wanted of the disk, as far as transfers may begin; goes on where it left
  // off.
  void prefetch();

  void check_invariants(const FindWaiting& find) const;

 private:
  struct Waiting {
    RequestId id;
    bool in_window = false;
    // In the window: its blocks that the index has, or what they are rotated from, up to the first that it
    // lacks; so many of them have been looked at for a prefetch.
    std::vector<std::pair<BlockId, ChainKey>> wants;
    std::size_t prefetched = 0;
  };

  bool still_there(const std::pair<BlockId, ChainKey>& wanted) const;
  void set_wanted(const std::pair<BlockId, ChainKey>& wanted, std::uint32_t place);
  void take_changes(const FindWaiting& find);
  void move_window(const FindWaiting& find);
  void list_wants(std::uint64_t arrival, Waiting& waiting, const FindWaiting& find);
  void unlist_wants(std::uint64_t arrival, Waiting& waiting);

  const CoreConfig& config_;
  BlockIndex& index_;
  Transfers& transfers_;
  const Prefixes& prefixes_;
  std::vector<std::pair<std::uint64_t, RequestId>> changes_;  // since look()
  std::map<std::uint64_t, Waiting> waiting_;                  // by arrival
  std::uint64_t window_end_ = 0;    // an arrival: nobody from there on is in the window
  std::uint64_t window_count_ = 0;  // of requests in the window
  std::uint64_t wants_ = 0;         // blocks that they list
  std::unordered_map<ChainKey, std::set<std::uint64_t>, ChainKeyHash> wanters_;  // arrivals; never iterated
  std::uint32_t prefetch_window_ = 0;  // requests whose state host memory can hold
  bool prefetched_ = true;             // all that they need
};

}  // namespace loci
