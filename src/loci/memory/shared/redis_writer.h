// SPDX-License-Identifier: Apache-2.0
// The writing thread of a store that speaks Redis's protocol: writes values, deletes them, probes a store
// that is down, and keeps the map of a cluster up to date (docs/shared-store.md).
//
// A write that comes too late, or while the store is down, ends without it. A deletion waits until the store
// takes or refuses it:
//
//     forget(a)      the store is down                 kept: a
//     probe          it answers again                  a is deleted, then what else is kept
//     forget(b)      b's node of the cluster is away   kept: b, which is tried again every two seconds
//
// Deletions that follow one another are asked for together, so that one of many blocks holds nobody's writes
// up for long. None overtakes the writes before it: they may be of the same block.
//
// It owns the jobs that wait and the deletions that are kept.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/shared/job_queue.h"
#include "loci/memory/shared/redis_connection.h"
#include "loci/memory/shared/redis_store_state.h"

namespace loci {

// Thread-safe, but for run(), which is one thread's.
class RedisWriter {
 public:
  // `store` must outlive it.
  explicit RedisWriter(RedisStoreState& store) : store_(store) {}

  struct Write {
    ChainKey key;
    std::uint32_t group = 0;
    std::vector<std::byte> bytes;
    std::function<void(Status)> done;  // once, on the writing thread
    Nanos waits_until = 0;
  };
  void write(Write job) { jobs_.push(std::move(job)); }
  // Deletes the key's parts in all groups, once the store is there. One too many is dropped.
  void forget(const ChainKey& key);
  // The map of a cluster may be old, or a node of it is away.
  void tend() { jobs_.push(Tend{}); }
  // The store is left alone from now on: who writes is the one that tries it again, and may be at rest.
  void wake() { jobs_.push(Wake{}); }
  // run() ends once all that waits has been carried out.
  void close() { jobs_.close(); }
  void run();

 private:
  struct Forget {
    ChainKey key;
  };
  struct Tend {};
  struct Wake {};
  using Job = std::variant<Write, Forget, Tend, Wake>;
  enum class Found : std::uint8_t { kThere, kNotThere, kAway };

  void carry_out(Write& job, RedisLine& line);
  void carry_out(const Forget& job, RedisLine& /*line*/) { batch_.push_back(job); }
  void carry_out(const Tend& job, RedisLine& line);
  void carry_out(const Wake&, RedisLine&) {}
  Nanos due(bool down) const;
  void forget_kept(RedisLine& line);
  void forget_batch(RedisLine& line);
  void drop_kept(std::string_view why);
  void note_answer(const Status& status, RedisLine& line);
  void tend_now();
  enum class Deletion : std::uint8_t { kUnanswered, kAway, kRefused, kDone };
  Status forget_in(const std::vector<Forget>& batch, RedisLine& line, std::vector<Deletion>& ends,
                   std::string& refusal);
  Status write_to(const Write& job, RedisLine& line, Nanos deadline);
  Status refuse_away();
  Result<Found> find(RedisConnection& connection, const std::string& name, std::uint32_t group,
                     Nanos deadline);

  RedisStoreState& store_;
  JobQueue<Job> jobs_;
  std::atomic<std::size_t> forgets_{0};  // that wait or are kept
  // The writing thread's:
  std::vector<Forget> batch_;  // deletions that are asked for next
  std::deque<Forget> kept_;    // deletions until the store is back
  Nanos kept_at_ = 0;          // they are tried again then, all of them
  std::size_t kept_left_ = 0;  // how many of them have not been tried since
  Nanos tend_at_ = kNever, tended_at_ = 0;
};

}  // namespace loci
