// SPDX-License-Identifier: Apache-2.0
// A store beyond the machines, which servers of one cluster share: whole blocks, found by their chain keys
// (docs/shared-store.md). It is to all servers what the disk store is to one, with a difference: nobody
// accounts for what it holds. It forgets when it likes, so a block that was written need not be there. A
// server asks before it reads, and may still find the block gone.
//
// Thread-safe. Callbacks run on the store's own threads, must not block, and may call the store. Every call
// comes to an end within a bound, with the store dead or silent too.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "loci/base/clock.h"
#include "loci/memory/block_source.h"
#include "loci/memory/chain_key.h"

namespace loci {

// Of what other servers of the cluster say and give (cluster/peers/peer_store.h).
struct PeerStats {
  std::uint32_t known = 0;       // that serve the same state
  std::uint32_t up = 0;          // of them, that are asked; the others failed, and are left alone for a while
  std::uint64_t asks_total = 0;  // questions, each to one peer
  std::uint64_t failures_total = 0;       // connections that failed or did not answer in time
  std::uint64_t parts_found_total = 0;    // that a peer was said to have, in answers that came in time
  std::uint64_t parts_read_total = 0;     // whole and verified
  std::uint64_t parts_gone_total = 0;     // were to be read, and were not there any more
  std::uint64_t parts_damaged_total = 0;  // did not verify
  std::uint64_t parts_failed_total = 0;   // the peer failed meanwhile
  std::uint64_t bytes_read_total = 0;
};

// A part is what a block has in one group of layers.
struct SharedStoreStats {
  std::uint64_t asks_total = 0;               // calls of ask()
  std::uint64_t asks_failed_total = 0;        // of them, that the store did not answer in time
  std::uint64_t parts_asked_total = 0;        // in those calls
  std::uint64_t parts_found_total = 0;        // of them
  std::uint64_t parts_read_total = 0;         // whole and verified
  std::uint64_t parts_gone_total = 0;         // were to be read, and were not there
  std::uint64_t parts_damaged_total = 0;      // did not verify
  std::uint64_t parts_written_total = 0;      // new ones
  std::uint64_t parts_present_total = 0;      // were to be written, and were there
  std::uint64_t parts_refused_total = 0;      // the store is full, or read only
  std::uint64_t deletions_dropped_total = 0;  // of blocks, that the store did not take: their parts stay
  std::uint64_t bytes_read_total = 0, bytes_written_total = 0;  // of sealed values
  std::uint64_t failures_total = 0;  // connections that failed or did not answer in time
  bool up = false;                   // it is asked; else it is left alone for a while
  bool is_there = true;              // false: there is no store, but peers alone
  std::optional<PeerStats> peers;    // of a server that asks any
};

// How fast values come from a store.
struct SharedRate {
  Nanos latency = 0;  // of a read
  std::uint64_t bytes_per_second = 1;
};

// BlockSource's slots mean nothing here. read(): kNotFound is what is gone. write(): kResourceExhausted where
// the store has no room. change(): a kForget deletes all groups' parts of the entry's key once the store is
// there; a deletion that the store refuses, or one too many, is counted as dropped. Other changes do nothing.
class SharedStore : public BlockSource {
 public:
  // By key: bit g is set where the store has the part of group g, whole by its size. If a peer gives it, bit
  // kLayerGroupsMax + g is set too.
  using Answer = std::function<void(std::vector<std::uint8_t> groups)>;
  // Answers once, at the latest after `time_limit`; what is not known by then counts as not there.
  virtual void ask(std::vector<ChainKey> keys, Nanos time_limit, Answer answer) = 0;
  virtual SharedStoreStats stats() const = 0;
  // As measured when it was opened; absent: it was not.
  virtual std::optional<SharedRate> first_rate() const { return std::nullopt; }
};

}  // namespace loci
