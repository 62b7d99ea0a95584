// SPDX-License-Identifier: Apache-2.0
// The seam between the movers and a store that keeps blocks outside this process's memory: it reads and
// writes them by slot and key. There are the disk store, a store that servers share, and other members of the
// cluster.
//
// A source decides nothing: which slot holds what is the core's business. A block is read with the key that
// it must have, and one that does not verify is reported, never served.
//
// Thread-safe. Callbacks run on the source's own threads, must not block, and may call the source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/memory/block_entry.h"
#include "loci/memory/chain_key.h"

namespace loci {

// One group's part of a block.
struct BlockRead {
  std::uint32_t group = 0;
  SlotId slot;
  ChainKey key;  // that the entry must have
};

// Receives the slices of a read.
class BlockReadSink {
 public:
  virtual ~BlockReadSink() = default;
  // Verified slices of layers [first, first + count) of the group (counted in the group); of each item in
  // ascending order, each once. `bytes` is valid until it returns.
  virtual void slices(std::size_t item, std::uint32_t first, std::uint32_t count,
                      std::span<const std::byte> bytes) = 0;
  // Whether anybody still waits for the item. If not, the source may end it without reading the rest.
  virtual bool wanted(std::size_t /*item*/) { return true; }
  // The item's last call. kDataLoss: the entry is damaged, another's or, on a disk, not there; kNotFound: a
  // store that servers share does not have it any more; kUnavailable: the source failed; kDeadlineExceeded:
  // it did not answer in time, or has not for so long that it is not asked.
  virtual void done(std::size_t item, Status status) = 0;
};

class BlockSource {
 public:
  virtual ~BlockSource() = default;

  // Reads whole entries: `layers_at_once` layers of every item, then the next ones, so that all items'
  // first layers arrive first. 0: what the source thinks best.
  virtual void read(std::vector<BlockRead> items, std::uint32_t layers_at_once,
                    std::shared_ptr<BlockReadSink> sink) = 0;
  // Writes an entry: `bytes` is the group's block (layers * layer_slice_bytes), owned by the source until
  // `done`. What was in the slot is gone from the moment of the call.
  virtual void write(std::uint32_t group, SlotId slot, BlockEntry entry, std::vector<std::byte> bytes,
                     std::function<void(Status)> done) = 0;
  // Changes and writes of one slot are carried out in the order of the calls.
  virtual void change(const RecordChange& change) = 0;
};

}  // namespace loci
