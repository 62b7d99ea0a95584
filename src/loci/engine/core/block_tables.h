// SPDX-License-Identifier: Apache-2.0
// The blocks of running requests, and the block tables with the slots of their parts: they grow, passes fill
// them, whole ones become blocks that others find, and in the end all are let go.
//
// An example, of blocks of four tokens. A request was admitted with a prompt of six tokens; K: state is
// there.
//
//     admission     [KKKK][....]         the second block is its tail: its own, without a name
//     fill()        [KKKK][KK..]         a pass has computed two tokens
//     ...           [KKKK][KKKK]         the tail is whole: it gets its name, and others find it. Where
//                                        another block of that name has come meanwhile the tail gives way
//                                        to it, or brings it the state that it lacks
//     grow()        [KKKK][KKKK][....]   the next token opens a block
//     let_go()                           what it held stays in the index; the tail's end may be saved
//
// Behind a pass in flight a block is begun before its first token is known (docs/decisions/passes-ahead.md):
//
//     reserve_next()   slots are reserved, without a block           [KKKK] + slots
//     open_next()      the token is there: the block is, too         [KKKK][K...]
//     release_next()   or it does not come, and nobody needs them    [KKKK]
//
// It owns the blocks of requests that run, from their admission (admission.h, which places the first ones)
// on: CoreRequest::blocks, tables, tail and grown; and their loads: CoreRequest::loads, which passes join
// (pass_former.h). It requires that a request in the batch was admitted, and that pieces are of passes that
// have ended. It calls the index, the transfers, the prefixes, the windows, the flights (who keep what passes
// still read) and the batch. Invariants, which check_invariants() tests (core.h has all):
//   2. A running request holds the parts that it needs, in the slots that its tables have.
//   4. A tail has one writer; nobody writes what others have made public. Whole blocks lack nothing, or it is
//      being loaded.
//   5. A table spells its request's tokens: each block is its predecessor's child, under the key of its
//   tokens.
//   7. Who is held up by loads has blocks of its own that were on their way, each once and from the left.
//   10. Blocks that are said to be untouched have no state, and none is coming.
#pragma once

#include <cstdint>

#include "loci/engine/core/batch.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/core_pass.h"
#include "loci/engine/core/flights.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/probes.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/transfers.h"
#include "loci/engine/core/windows.h"
#include "loci/memory/block_index.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. A call costs O(groups · log) for each block that it
// changes.
class BlockTables {
 public:
  // `config` has limited windows. All seven must outlive it.
  BlockTables(const CoreConfig& config, BlockIndex& index, Transfers& transfers, const Prefixes& prefixes,
              Windows& windows, Flights& flights, const Batch& batch);

  // --- growth ---

  // The request's next token opens a block that it does not have.
  static bool wants_block(const CoreRequest& request) {
    return request.length() > request.blocks.size() * kBlockTokens;
  }
  // Opens that block. False: the device has no room for it.
  bool grow(CoreRequest& request);
  // Reserves slots for the block that the token after the next one opens. False: there are none.
  bool reserve_next(CoreRequest& request);
  // The token is there, and the request goes on: its next block is as if it had grown.
  void open_next(CoreRequest& request);
  // No pass goes on to that block. True: room was given back.
  [[nodiscard]] bool release_next(CoreRequest& request) {
    if (!request.has_grown()) return false;
    release_slots(request);
    return true;
  }

  // --- loads ---

  // Begins what the request's blocks need; all of it is placed and held by the request. True: what begins now
  // others may need too.
  bool begin_loads(CoreRequest& request, const CoreProbes& probes);
  // Loads have ended. What they brought is counted now, so that the pass which a request joins does not look
  // at all of its blocks. O(batch + blocks that came).
  void count_loaded();
  // Something of the block will not come: nothing counts that passes in flight compute behind the first block
  // that was being loaded. O(batch · loads).
  void miss(const Transfers::Missed& missed);

  // --- what passes bring ---

  // `pass`, which has ended, has brought the piece.
  void fill(CoreRequest& request, const CorePiece& piece, const CorePass& pass);
  // A request's tail ends here, for good or for a while, and its tokens are wished to be saved as a partial
  // block. (Where blocks are saved ahead of their eviction alone, so are tails; but not in models with
  // windows, where all that the next token sees is saved when its request ends.)
  void wish_save_tail(const CoreRequest& request);
  // Lets go of all blocks, the deepest first; what passes in flight still read they keep. What the blocks
  // have stays in the index.
  void let_go(CoreRequest& request);

  // Of a request that runs. Aborts on a broken invariant. O(blocks · groups).
  void check_invariants(const CoreRequest& request) const;

 private:
  bool windowed(std::uint32_t group) const { return windows_.windowed(group); }
  void release_slots(CoreRequest& request);
  void touch(CoreRequest& request, BlockId block) const;
  void complete_tail(CoreRequest& request);
  void wish_copies(BlockId block);
  void wish_windows(const CoreRequest& request);
  ChainKey check_parent(const CoreRequest& request, std::size_t number, ChainKey key, BlockId& parent) const;
  void check_names(const CoreRequest& request) const;
  void check_slots(const CoreRequest& request) const;
  void check_untouched(const CoreRequest& request) const;
  static void check_loads(const CoreRequest& request);

  BlockIndex& index_;
  Transfers& transfers_;
  const Prefixes& prefixes_;
  Windows& windows_;
  Flights& flights_;
  const Batch& batch_;
  std::uint32_t group_count_;
  bool saves_as_they_fill_;
  bool saves_ends_;
};

}  // namespace loci
