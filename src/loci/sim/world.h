// SPDX-License-Identifier: Apache-2.0
// Runs the production core over a trace on modelled hardware in virtual time. Only hardware is modelled: the
// code that serves decides what is admitted, scheduled, loaded, saved and evicted. The same trace, options
// and seed give the same report to the byte.
//
// A run may have several instances behind fronts. Then the code of fronts decides too which instance gets a
// request, and instances publish what they have and read it from one another.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/cluster/feed/published_chunks.h"
#include "loci/cluster/instances.h"
#include "loci/cluster/peers/peer_rounds.h"
#include "loci/engine/core/core.h"
#include "loci/policy/routing/prefill_choice.h"
#include "loci/policy/routing/routing.h"
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

// When a front's trees take in where a prompt was answered.
enum class Remembers : std::uint8_t {
  kBegun,  // when its reply begins, as our fronts do
  kEnded,  // when its reply has come back whole (MemServe §6)
};

// Several instances behind fronts. All instances are alike, with memory and links of their own.
struct ClusterOptions {
  std::uint32_t instances = 0;  // 0: one server, without a front
  std::uint32_t fronts = 1;     // each request comes to one of them by chance
  RoutingPolicy policy = RoutingPolicy::kFirstToken;
  Remembers remembers = Remembers::kBegun;
  std::uint32_t prefills = 0;  // the first so many instances have the role `prefill`, the others `decode`
  bool reads_early = true;     // these read what those have computed after each pass; false: at the end
  Handover handover = Handover::kPredicted;
  bool peers = true;          // instances read state from one another
  bool prefills_read = true;  // these too; false: they compute all that they lack themselves
  // What an instance sends to others, one block after another; the latency is that of a message.
  LinkCost network = {200'000, 3'000'000'000};
  std::uint8_t peer_rounds = kPeerRounds;  // of a read from a peer, if it has so many bytes
  std::uint64_t peer_rounds_bytes = kPeerRoundsBytes;
  PublishedChunksOptions published;
  // Of each front: a tree of this size is cleared when the front is made.
  std::size_t tree_entries_max = InstancesOptions().tree_entries_max;
};
inline constexpr std::uint32_t kInstancesMax = 64, kFrontsMax = 16;

struct WorldOptions {
  CoreConfig core;  // `core.costs`: what the core believes
  ModelShape model;
  Machine machine;         // what passes and moves really cost
  bool stateless = false;  // no state is reused: each prompt begins with a token of its own
  // False: what no running request needs leaves the device's memory before a request arrives.
  bool device_keeps = true;
  Overflow overflow = Overflow::kStop;
  FaultOptions faults;                      // if it has restarts, no event log can be written
  ClusterOptions cluster;                   // likewise if it has instances
  Nanos deadline = kNever;                  // of each request, from its arrival
  std::uint64_t warm_up = 0;                // the first requests to arrive, which are not counted
  bool steady = false;                      // what arrives after the last conversation began is not counted
  std::string event_log;                    // a file for `loci replay`; empty: none
  bool record_uses = false;                 // WorldReport::uses
  bool record_tokens = false;               // WorldReport::tokens
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
  std::uint32_t prompt_tokens = 0;  // computed or reused; without tokens that were dropped
  // Of these, tokens that an earlier turn of the conversation had, or others before it.
  std::uint32_t history_tokens = 0;
  std::uint32_t reply_tokens = 0;
  std::array<std::uint32_t, kTiers> from{};
  std::uint32_t prefilled = 0;  // tokens that a prefill member computed for it; in `from` they are not
  std::uint32_t hidden = 0;     // of the disk's tokens, those that came as hidden states
  Outcome outcome = Outcome::kWaits;
  std::uint32_t moved = 0;  // how many instances died while they had it
  Nanos pause = 0;          // the longest time from such a death to the next new token
  // From its admission until its new tokens are computed, as predicted at its admission.
  Nanos planned = kNever;
};

// A token that a client got.
struct WorldToken {
  std::uint32_t request = 0;  // of WorldReport::requests
  Nanos at = 0;
};

// What became of a run of several instances.
struct ClusterReport {
  std::array<std::uint64_t, kRoutedWhys> chosen{};  // requests sent, by why to that instance
  std::uint64_t refused = 0;                        // connections to instances that had died
  std::uint64_t moved = 0, lost = 0;  // deaths of a request's instance: it went on elsewhere, it failed
  std::uint64_t tokens_again = 0;     // of replies, that clients had
  std::uint64_t prompts_again = 0;    // tokens of prompts that instances had begun with when they died
  std::uint64_t prefilled = 0;        // prompts that prefill members computed
  std::uint64_t prefills_failed = 0;  // that they did not
  std::uint64_t read_early = 0;       // tokens of such prompts, read from peers before all were computed
  std::uint64_t feed_gaps = 0, feed_changes = 0, feeds_broken = 0;
  std::uint64_t peer_asks = 0, peer_blocks = 0, peer_blocks_gone = 0;
  std::uint64_t peer_bytes_given = 0, peer_bytes_got = 0, peer_bytes_lost = 0;
};

struct WorldReport {
  std::vector<RequestRecord> requests;  // in the order of arrival
  Nanos duration = 0;
  // Requests that arrive later are not counted. kNever: all are.
  Nanos counted_until = kNever;
  // For passes that began after the warm-up had arrived, and not later than `counted_until`: the time of
  // prompts, that of decodes, and the further time for which passes waited for loads.
  Nanos prompt_time = 0, decode_time = 0, load_wait = 0;
  // Likewise: for what they projected of hidden states, and for copying their own out beyond that.
  Nanos projecting_time = 0, capture_wait = 0;
  Nanos prompt_work = 0;  // of all tokens of prompts that were computed (PassModel::work)
  std::uint64_t passes = 0;
  std::uint64_t poisoned_spans = 0;
  std::uint64_t failed_moves = 0;
  // Blocks, as hidden states, and saves for which not all of a block was captured.
  std::uint64_t hidden_saved = 0, hidden_loaded = 0, hidden_not_captured = 0;
  std::uint64_t restarts = 0;                           // ends of processes
  std::uint64_t disks_lost = 0;                         // of these, those whose disk was lost too
  std::uint64_t suspensions = 0;                        // of requests, in all processes
  std::uint64_t sampled = 0;                            // tokens, in all processes
  std::uint64_t recovered = 0;                          // entries of the disk that restarted processes took
                                                        // over
  std::array<std::uint64_t, kCoreLinks> bytes_moved{};  // by CoreLink
  CoreStats stats;                                      // of the last process of the first instance
  ClusterReport cluster;
  // Uses of whole blocks, in the order of arrivals and ends: those that prompts need and those that replies
  // make.
  std::vector<BlockUse> uses;
  std::vector<WorldToken> tokens;  // in the order of their times
  std::uint64_t digest = 0;        // of all output of the core, in order
  bool stopped = false;
};

// Checks that no request, token or byte is lost, whatever goes wrong, else ends the program (ledger.h). A
// request that was live when the process ended has failed; its conversation goes on. With fronts it goes on
// at another instance; if that dies too it has failed. Errors: kInvalidArgument (the core's configuration, a
// log of several processes, instances that stay away without a front), kUnavailable (the event log).
Result<WorldReport> run_world(const Trace& trace, const WorldOptions& options);

}  // namespace loci::sim
