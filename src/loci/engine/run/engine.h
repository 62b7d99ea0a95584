// SPDX-License-Identifier: Apache-2.0
// The engine: one model on one backend, serving many requests at once. It carries out the core's plans
// (core.h) with two threads of its own: "core" takes events and calls listeners, "compute" drives the
// backend, samples, and steps the state machine at the end of a pass. A mover carries out moves between tiers
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
#include "loci/engine/run/block_listener.h"
#include "loci/engine/run/sampler.h"

namespace loci {

struct GenerationRequest {
  TenantId tenant;
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  // How many of the prompt's last tokens begin the reply: another server sampled them. They count for
  // max_new_tokens and the sampling's parameters, which are those of the whole reply; at least one more is
  // sampled. Usage counts them with the prompt.
  std::uint32_t said_tokens = 0;
  std::uint32_t max_new_tokens = 0;
  std::vector<TokenId> stop_tokens;        // the model's end tokens and the client's; empty with ignore_eos
  std::optional<Nanos> time_limit;         // counted from submit()
  std::shared_ptr<const Grammar> grammar;  // which texts the reply may be; null: any
  std::uint32_t weight = 1;                // of the tenant; see Arrival
  std::uint32_t queued_max = 0;
  SharingScope scope = SharingScope::kTenant;
  std::vector<TokenRange> dropped;  // of the prompt; see Arrival
  std::string salt;                 // see Arrival
  // Another reply to a prompt of which one was asked for before: the prompt counts in stats() with that one.
  bool repeats_prompt = false;
  std::shared_ptr<const PromptNames>
      text;                     // the prompt's, for EngineOptions::listener; null: nobody knows it
  bool tells_computed = false;  // PromptComputed is among its events
};

// The events of a request, for its listener: at most one GenerationStarted, then how far its prompt is
// computed, if it wants to know, then GenerationRestored (if it has started), tokens, and exactly one end.
struct GenerationStarted {
  std::uint32_t cached_tokens = 0;
  ContextSources sources;
};
// Where its prompt's state has come from: what was found and failed to come counts as computed.
struct GenerationRestored {
  ContextSources sources;
};
// After a pass that computed some of the prompt, and not its last token.
struct PromptComputed {
  std::uint32_t tokens = 0;  // the prompt's first ones, whose state is there
};
using GeneratedToken = Sampled;
struct GenerationEnded {
  // Not ok: the request was refused (see Rejected), reason is kGrammar, or the device was lost
  // (kUnavailable).
  Status status;
  Nanos retry_after = 0;  // only if status is kResourceExhausted
  FinishReason reason = FinishReason::kStop;
  Usage usage;
};
using GenerationEvent =
    std::variant<GenerationStarted, PromptComputed, GenerationRestored, GeneratedToken, GenerationEnded>;

// Called on the core's thread, in order. It must not block nor call back into the engine; it passes the event
// on to a queue or a strand.
using GenerationListener = std::function<void(const GenerationEvent&)>;

// Tells idle work (Engine::when_idle) whether it should stop now. Thread-safe.
using IdleStop = std::function<bool()>;
// Work for idle time. Returns true when it is done; false if it was stopped and should be called again when
// the engine is idle.
using IdleWork = std::function<bool(const IdleStop&)>;

struct EngineOptions {
  CoreConfig core;
  MoverOptions mover;                // its tiers must match those of `core`
  DiskRoom disk_room;                // at first; empty: all slots
  std::uint32_t capture_places = 0;  // how many blocks' hidden states may wait to be saved
                                     // (CoreConfig::hidden)
  // Empty: none. The log is written by whoever steps the core, under the engine's mutex (core_mutex_), before
  // the next step: it has events in their order, and a slow disk under it slows the steps.
  std::string event_log_path;
  LoggedSecret event_log_secret = LoggedSecret::kLeftOut;
  std::shared_ptr<BlockListener> listener;  // null: nobody
  // A pass that has not ended so long after it was planned, or after the one before it, says that the device
  // stands still (Engine::health). kNever: none does.
  Nanos stall_limit = kNever;
};

// Thread-safe.
class Engine {
 public:
  // `backend` (its blocks allocated) and `clock` must outlive the engine. Entries that the disk has from
  // before are found while the engine already serves. Errors: those of CoreConfig, Mover::make() and the
  // event log; kResourceExhausted if the system has no more threads, or no memory for the list of all blocks.
  static Result<std::unique_ptr<Engine>> start(EngineOptions options, Backend& backend, const Clock& clock);
  // Cancels all requests, waits for passes and moves in flight, and stops. Every listener has then had its
  // end event.
  ~Engine();

  RequestId submit(GenerationRequest request, GenerationListener listener);
  // The listener's end event follows (kCancelled), unless it has come already.
  void cancel(RequestId request);
  // Says whether the request's client has stopped reading the reply. While paused the request computes
  // nothing (Pause). The caller must resume or cancel it later.
  void pause(RequestId request, bool paused);
  // Releases the public prefix that the request of this id made: it is no longer public.
  void withdraw(RequestId prefix);
  // Deletes the state of a deleted conversation from every tier (plan.h), after requests that still use it
  // have ended.
  void forget(Forget what);
  // How many of the disk's slots may be used from now on (DiskRoom).
  void set_disk_room(DiskRoom room);
  // From now on this much of the device's memory may hold state that nobody uses (MemoryRoom).
  void set_memory_room(MemoryRoom room);
  // Calls `work` once nothing has run, moved or waited for the time `quiet`, and again after it was stopped,
  // until it is done. It is called on the thread that runs passes, so it may use the backend as that thread
  // does. Requests that arrive meanwhile wait for it, so `work` must check its IdleStop often. May be called
  // once in the engine's life.
  void when_idle(Nanos quiet, IdleWork work);
  // Questions and reads of peers (plan.h); results go to MoverOptions::peers. The caller chooses the ids. A
  // read's deadline is counted from now.
  void ask_for_peer(PeerQuestion question);
  void read_for_peer(PeerRead read, Nanos time_limit);
  void leave_peer(PeerReadId read);
  // Sets measured costs of computing and moving (plan.h).
  void set_costs(CostCurves costs);
  // Refuses new requests; running ones may go on for `grace` and are then cut off.
  void drain(Nanos grace);
  // Waits until all requests, moves and deletions have ended after drain(). False: the time limit came first.
  bool wait_drained(Nanos time_limit);

  // Ok, or:
  // - kUnavailable for good once the device is lost: then every request has ended, and new ones are refused;
  // - kDeadlineExceeded while a pass takes longer than EngineOptions::stall_limit: a device that hangs does
  //   not say that it is lost. Requests wait until it goes on.
  //
  // None of these functions waits for a running step, nor for anything that a step waits for, such as the
  // log's disk.
  Status health() const;
  // After the last step. Prompts and generated tokens are counted as usage counts them (Replies::correct()).
  CoreStats stats() const;
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
