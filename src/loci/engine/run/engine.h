// SPDX-License-Identifier: Apache-2.0
// The engine: one model on one backend, serving many requests at once. It carries out the core's plans
// (core.h) with two threads of its own: "core" takes events and calls listeners, "compute" drives
// the backend, samples, and steps the state machine at the end of a pass. Moves between tiers are a mover's
// (mover.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/log/event_log.h"
#include "loci/engine/mover/mover.h"
#include "loci/engine/run/sampler.h"

namespace loci {

struct GenerationRequest {
  SharingGroup group;
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::uint32_t max_new_tokens = 0;
  std::vector<TokenId> stop_tokens;        // the model's end tokens and the client's; empty: ignore_eos
  std::optional<Nanos> time_limit;         // from now
  std::shared_ptr<const Grammar> grammar;  // what the reply must be; null: anything
  std::uint32_t weight = 1;                // of the group, which is the tenant; see Arrival
  std::uint32_t queued_max = 0;
  SharingScope scope = SharingScope::kTenant;
  std::vector<TokenRange> dropped;  // of the prompt; see Arrival
  std::string salt;                 // see Arrival
};

// What a request tells its listener: at most one GenerationStarted, then tokens, then exactly one end.
struct GenerationStarted {
  std::uint32_t cached_tokens = 0;
  ContextSources sources;
};
using GeneratedToken = Sampled;
struct GenerationEnded {
  // Not ok: the request was refused (see Rejected), reason is kGrammar, or the device was lost
  // (kUnavailable).
  Status status;
  Nanos retry_after = 0;  // where status is kResourceExhausted
  FinishReason reason = FinishReason::kStop;
  Usage usage;
};
using GenerationEvent = std::variant<GenerationStarted, GeneratedToken, GenerationEnded>;

// Called on the core's thread, in order. Must not block nor call back into the engine: it hands the
// event on (to a queue, a strand).
using GenerationListener = std::function<void(const GenerationEvent&)>;

// Whether work that is done while the engine is idle (Engine::when_idle) should leave the processor now.
// Thread-safe.
using IdleStop = std::function<bool()>;
// True: it is done. False: it was stopped, and wants to go on when the engine is idle again.
using IdleWork = std::function<bool(const IdleStop&)>;

struct EngineOptions {
  CoreConfig core;
  MoverOptions mover;                // its tiers are those of `core`
  DiskRoom disk_room;                // to begin with; empty: all slots
  std::uint32_t capture_places = 0;  // blocks whose hidden states wait to be saved (CoreConfig::hidden)
  std::string event_log_path;        // empty: none
  LoggedSecret event_log_secret = LoggedSecret::kLeftOut;
};

// Thread-safe.
class Engine {
 public:
  // `backend` (its blocks allocated) and `clock` must outlive the engine. What the disk holds from before
  // is found while the engine serves. Errors: CoreConfig's, Mover::make()'s, the event log's.
  static Result<std::unique_ptr<Engine>> start(EngineOptions options, Backend& backend, const Clock& clock);
  // Cancels what runs, waits for the pass and the moves in flight and stops. Every listener has had its end.
  ~Engine();

  RequestId submit(GenerationRequest request, GenerationListener listener);
  // The listener's end follows (kCancelled), unless it has come already.
  void cancel(RequestId request);
  // The request's client does not take what it says, or takes it again: it computes nothing meanwhile
  // (Pause). Whoever pauses resumes or cancels it.
  void pause(RequestId request, bool paused);
  // The public prefix that the request of this id made is one no more.
  void withdraw(RequestId prefix);
  // What was said is deleted, and its state goes from every tier (plan.h); what still uses it ends first.
  void forget(Forget what);
  // How many of the disk's slots may be used from now on (DiskRoom).
  void set_disk_room(DiskRoom room);
  // How much of the device's memory may hold state that is kept from now on (MemoryRoom).
  void set_memory_room(MemoryRoom room);
  // Calls `work` on the thread that runs passes, which then may use the backend as that thread does, once
  // nothing has run, moved or waited for `quiet`; again after it was stopped, until it is done. What arrives
  // meanwhile waits for it, so `work` looks at its IdleStop often. Once, while the engine lives.
  void when_idle(Nanos quiet, IdleWork work);
  // What peers ask and read (plan.h); MoverOptions::peers hears what becomes of it. The ids are the caller's;
  // a read's deadline is so far from now.
  void ask_for_peer(PeerQuestion question);
  void read_for_peer(PeerRead read, Nanos time_limit);
  void leave_peer(PeerReadId read);
  // What computing and moving costs was measured (plan.h).
  void set_costs(CostCurves costs);
  // Refuses new requests; what runs may go on for `grace`, then is cut off.
  void drain(Nanos grace);
  // True once everything has ended after drain(), moves too; false at the time limit.
  bool wait_drained(Nanos time_limit);

  // kUnavailable, for good, once the device was lost: with it every request has ended, and new ones are
  // refused.
  // None of these waits for a step that runs, nor for what it waits for (a log's disk, say).
  Status health() const;
  CoreStats stats() const;  // after the last step
  MoverStats mover_stats() const;
  CaptureStats capture_stats() const;
  DiskStoreStats disk_stats() const;
  SharedStoreStats shared_stats() const;
  const CoreConfig& config() const;

 private:
  class State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace loci
