// SPDX-License-Identifier: Apache-2.0
// Where the state of a request's prompt came from: as it was found at admission, less what did not come.
//
// An example: a prompt of three blocks and a few tokens more, t. K: on the device; d: the disk has it.
//
//     block            0   1   2   t
//     start()          K   d   d   .      64 tokens from the disk, 32 from the device; t computed
//     lost()               x              the copy of block 1 is damaged
//     computed()           c              32 tokens from the disk, 32 from the device; 32 and t computed
//     settle()                            that is told, and summed
//
// The rules:
//   - A request may lose a load. From then on each found token that it computes after all counts as computed,
//     for the reason of its first loss. (With windows it goes on from an earlier place, and so computes more
//     than it lost.)
//   - What was found and then evicted, because the request gave way to others, counts as found.
//   - With the first sample it is settled: that sample has read the state of all the prompt, so what was
//     found has come. A request that ends before is settled then.
//
// It owns the sources of a request (RequestSources), and their sums over all requests. It requires that a
// request starts once, and is settled before it is forgotten. It calls the batch. Invariants, which
// check_invariants() tests (core.h has all):
//   10. What a request found is the sum over its blocks, and with what it computes all of its prompt.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "loci/engine/core/batch.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/transfers.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(1) where not said otherwise.
class PromptSources {
 public:
  // The request is admitted for the first time.
  static void start(CoreRequest& request, FoundSources found);
  // These will not come, in the order of their ends. O(loads of the batch · log missed).
  static void lost(const Batch& batch, std::vector<Transfers::Missed> missed);
  // A pass has computed these of its tokens. Returns how many of them count as computed only now.
  // O(blocks) of the tokens where the request has lost a load.
  static std::uint32_t computed(CoreRequest& request, std::uint32_t position, std::uint32_t count);
  // Sums it. Absent: it was settled before, or has not started.
  std::optional<ContextSources> settle(CoreRequest& request);

  void add_stats(CoreStats& stats) const;
  // Of a request. Aborts on a broken invariant. O(blocks).
  static void check_invariants(const CoreRequest& request);

 private:
  std::uint64_t prompts_ = 0;  // tokens
  std::array<std::uint64_t, kTiers> from_{};
  std::array<std::uint64_t, kMissReasons> computed_{};
};

}  // namespace loci
