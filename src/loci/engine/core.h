// The core: one deterministic state machine that admits, schedules, places and evicts. It owns no
// thread, reads no clock, touches no byte of state and does no I/O. step(now, event) → plan.
//
// Scheduling. One batch for prompts and decodes (Pensieve §4.2). Each pass takes, within a budget of
// tokens, one token of every running decode and then chunks of prompts, first come first served. A
// request's missing ranges (holes of its prefix, then its new tokens) are taken from the left, one span
// a range. Admission keeps a share of the blocks free for running decodes; when they run out all the
// same, the latest arrival is suspended: its blocks go back to the index (where they may be evicted),
// itself to the head of the queue (Pensieve §4.3.5; what was lost is recomputed on its return).
//
// State of finished and suspended requests stays in the index until its memory is needed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "loci/base/status.h"
#include "loci/engine/plan.h"

namespace loci {

struct CoreConfig {
  std::uint32_t block_count = 0;  // slots of the device pool
  std::uint32_t layers = 0;
  std::uint32_t context_tokens = 0;           // the most that one sequence may hold
  std::uint32_t max_batch_tokens = 512;       // budget of a pass
  std::uint32_t max_running = 64;             // requests in a batch
  std::uint32_t max_queued = 256;             // requests that wait; beyond: Rejected
  std::uint32_t decode_reserve_percent = 10;  // of the blocks, free of admission
  std::array<std::uint8_t, 16> model_fingerprint{};
  std::array<std::uint8_t, 32> chain_secret{};  // keys the hash of the chain keys
  std::string eviction = "lru";                 // lru, fifo, random
  std::uint64_t seed = 0;
};

struct CoreStats {
  std::uint32_t running = 0;
  std::uint32_t queued = 0;
  std::uint32_t blocks_total = 0;
  std::uint32_t blocks_free = 0;          // hold nothing
  std::uint32_t blocks_pinned = 0;        // needed by running requests
  std::uint64_t tokens_cached_total = 0;  // prompt tokens whose state was reused, ever
  std::uint64_t tokens_prompt_total = 0;
  std::uint64_t tokens_generated_total = 0;
  std::uint64_t tokens_computed_total = 0;  // rows of all passes
  std::uint64_t evictions_total = 0;        // blocks
  std::uint64_t suspensions_total = 0;
  std::uint64_t rejections_total = 0;
  std::uint64_t passes_total = 0;
};

// Thread-compatible: one thread owns it.
class Core {
 public:
  // Errors: kInvalidArgument naming the field of the configuration.
  static Result<Core> make(const CoreConfig& config);
  Core(Core&&) noexcept;
  Core& operator=(Core&&) noexcept;
  ~Core();

  // Events that name a request that has ended (a Cancel that came late) are ignored.
  Plan step(Nanos now, const Event& event);

  CoreStats stats() const;
  // Tests every invariant of the design's list; aborts on a broken one.
  void check_invariants() const;

 private:
  class State;
  explicit Core(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace loci
