// SPDX-License-Identifier: Apache-2.0
// Runs the production core over a trace on modelled hardware in virtual time. Only hardware is modelled: the
// code that serves decides what is admitted, scheduled, loaded, saved and evicted. The same trace, options
// and seed give the same report to the byte.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/engine/core/core.h"
#include "loci/sim/belady.h"
#include "loci/sim/faults.h"
#include "loci/sim/hardware.h"
#include "loci/sim/trace.h"

namespace loci::sim {

// What happens to a history that outgrows the context.
enum class Overflow : std::uint8_t {
  kStop,      // the conversation ends there
  kTruncate,  // the core drops its oldest half and keeps the rest's state
  kCut,       // the client drops the oldest half and sends the rest as a new prompt, which has no state
              // anywhere
};

struct WorldOptions {
  CoreConfig core;  // `core.costs`: what the core believes
  ModelShape model;
  Machine machine;         // what passes and moves really cost
  bool stateless = false;  // no state is reused: each prompt begins with a token of its own
  Overflow overflow = Overflow::kStop;
  FaultOptions faults;                      // if it has restarts, no event log can be written
  Nanos deadline = kNever;                  // of each request, from its arrival
  std::uint64_t warm_up = 0;                // the first requests to arrive, which are not counted
  std::string event_log;                    // a file for `loci replay`; empty: none
  bool record_uses = false;                 // WorldReport::uses
  bool check = false;                       // the core's invariants after each event; slow
  const std::atomic<bool>* stop = nullptr;  // set: the run ends and reports what was done
};

enum class Outcome : std::uint8_t { kWaits, kDone, kCancelled, kDeadline, kFailed, kRejected, kTooLong };
inline constexpr std::size_t kOutcomes = 7;
const char* outcome_name(Outcome outcome);

// A request's times, in virtual time; kNever: the request did not get that far.
struct RequestRecord {
  std::uint32_t conversation = 0;
  std::uint32_t turn = 0;
  Nanos arrived = 0;
  Nanos admitted = kNever;
  Nanos first_token = kNever;
  Nanos ended = kNever;
  std::uint32_t prompt_tokens = 0;   // computed or reused; without tokens that were dropped
  std::uint32_t history_tokens = 0;  // of these, tokens that an earlier turn of the conversation had
  std::uint32_t reply_tokens = 0;
  std::array<std::uint32_t, kTiers> from{};
  Outcome outcome = Outcome::kWaits;
};

struct WorldReport {
  std::vector<RequestRecord> requests;  // in the order of arrival
  Nanos duration = 0;
  // For passes that began after the warm-up had arrived: the time of prompts, that of decodes, and the
  // further time for which passes waited for loads.
  Nanos prompt_time = 0, decode_time = 0, load_wait = 0;
  std::uint64_t passes = 0;
  std::uint64_t poisoned_spans = 0;
  std::uint64_t failed_moves = 0;
  std::uint64_t restarts = 0;
  std::uint64_t recovered = 0;                          // entries of the disk that restarted processes took
                                                        // over
  std::array<std::uint64_t, kCoreLinks> bytes_moved{};  // by CoreLink
  CoreStats stats;                                      // of the last process
  // Uses of whole blocks, in the order of arrivals and ends: those that prompts need and those that replies
  // make.
  std::vector<BlockUse> uses;
  std::uint64_t digest = 0;  // of all output of the core, in order
  bool stopped = false;
};

// Checks that no request, token or byte is lost, whatever goes wrong, else ends the program (ledger.h). A
// request that was live when the process ended has failed; its conversation goes on. Errors: kInvalidArgument
// (the core's configuration, a log of several processes), kUnavailable (the event log).
Result<WorldReport> run_world(const Trace& trace, const WorldOptions& options);

}  // namespace loci::sim
