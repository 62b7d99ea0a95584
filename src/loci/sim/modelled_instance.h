// SPDX-License-Identifier: Apache-2.0
// One server on modelled hardware: the production core, its links, its disk, and the pass that runs. It
// carries out what the core plans, and tells the core what came of it.
//
// Its process may end at any time, and with it all that the process had, and begin again with what the disk
// has, or with nothing. What it exchanges with other instances (state of blocks that peers read) goes to an
// outbox, from where ModelledPeers takes it.
//
// Each process has a ledger of its own (ledger.h). Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loci/base/status.h"
#include "loci/cluster/feed/block_feed.h"
#include "loci/engine/core/core.h"
#include "loci/engine/log/event_log.h"
#include "loci/serve/generation/early_read_pace.h"
#include "loci/sim/agenda.h"
#include "loci/sim/asides.h"
#include "loci/sim/clients.h"
#include "loci/sim/disk_records.h"
#include "loci/sim/faults.h"
#include "loci/sim/hardware.h"
#include "loci/sim/ledger.h"
#include "loci/sim/links.h"
#include "loci/sim/modelled_hidden.h"
#include "loci/sim/running_pass.h"
#include "loci/sim/world.h"

namespace loci::sim {

// What has left a server for its peers and waits to be carried.
struct Outbox {
  struct Given {
    PeerPlace place;
    std::uint64_t bytes = 0;
    bool is_whole = true;  // false: it failed on the way
    Nanos began = 0;
  };
  std::vector<SharedAsk> asks;
  std::vector<PeerAnswer> answers;
  std::vector<PeerGone> gone;
  std::vector<Move> loads;  // from peers
  std::vector<Given> given;
  bool empty() const {
    return asks.empty() && answers.empty() && gone.empty() && loads.empty() && given.empty();
  }
};

class ModelledInstance {
 public:
  // All but `core` and `log` must outlive it. `number` is its place among the instances.
  ModelledInstance(const WorldOptions& options, std::uint32_t number, Core core,
                   std::optional<EventLogWriter> log, Agenda& agenda, Clients& clients, WorldReport& report);

  // Begins with an empty disk, and draws when its links become ill.
  void begin();
  void arrive(Arrival arrival, const PromptNames& names);
  // It reads what another instance has computed of a prompt (`arrival.request` by read_id()).
  void read_early(Arrival arrival, std::shared_ptr<EarlyReadPace> pace);
  void step(const Event& event);
  // Something on the agenda happens to its process or its links.
  void take(const Happening& one);
  std::optional<Nanos> next_transfer() const { return links_.next(); }
  void end_transfers();
  // A block that a peer was asked for has come, or will not come.
  // `began`: at the peer. `rounds`, `first_round`: as in Transfer.
  void end_peer_load(OperationId move, MoveResult result, Nanos began, std::uint32_t rounds,
                     Nanos first_round);

  // Its process ends; only the disk stays.
  void die();
  // The next process begins.
  void come_back(DiskAfterDeath disk);
  bool lives() const { return lives_; }
  // Which of its processes this is, from 1 on.
  std::uint64_t process() const { return process_; }
  // Draws when its process ends and comes back.
  Faults& faults() { return faults_; }

  const Core& core() const { return core_; }
  // Aborts if something is lost at the end of the run.
  void check_end() const {
    ledger_.check_end(core_.stats());
    hidden_.check(core_.stats().hidden_loaded_total);
  }
  BlockFeed* feed() { return feed_.get(); }
  Outbox take_outbox() { return std::exchange(outbox_, {}); }
  // Of prompts that it computes for other instances.
  std::vector<Asides::News> take_prefill_news() { return asides_.take_news(); }
  const Status& status() const { return status_; }
  // Whether what it publishes has changed since the last call.
  bool take_published() { return std::exchange(published_, false); }
  // Adds what its present process counted to the report.
  void add_counts();

 private:
  void see(const Output& output);
  void see(const Finished& finished);
  void start_moves(const Plan& plan);
  void start_save(const Move& move, std::uint64_t bytes);
  void end_at_once(const Move& move, MoveResult result);
  void end_move(std::uint64_t move, MoveResult result);
  void count_end(std::uint64_t move, MoveResult result);
  void arrived(const Transfer& transfer);
  void failed(const Transfer& transfer);
  void start_pass(const Plan& plan);
  void await(const Span& span, std::size_t number);
  void read(const Pass& pass);
  void watch_layers();
  void bring_layers(std::uint64_t transfer);
  void project_now(std::uint32_t layers, std::uint64_t blocks);
  void plan_end();
  void end_pass(std::uint64_t id);
  void lose_patience(std::uint64_t id);
  void schedule(Happens what, Nanos after, std::uint64_t which);
  void open_feed();
  std::uint64_t bytes_of(const Move& move) const;
  void drop_kept();
  bool projects_on_arrival() const {
    return hidden_.is_on() && options_.machine.projecting == Projecting::kOnArrival;
  }
  bool is_counted() const {
    return report_.requests.size() >= options_.warm_up && now() <= report_.counted_until;
  }
  bool restarts() const { return options_.faults.restarts > 0; }
  Nanos now() const { return agenda_.now(); }

  const WorldOptions& options_;
  const std::uint32_t number_;
  Core core_;
  std::optional<EventLogWriter> log_;
  const ChainKeyHasher hasher_;
  Agenda& agenda_;
  Clients& clients_;
  WorldReport& report_;
  PassModel pass_model_;
  Links links_;
  Faults faults_;
  DiskRecords disk_;  // where there are restarts
  ModelledHidden hidden_;
  Ledger ledger_;
  std::unique_ptr<BlockFeed> feed_;  // null: nobody reads it
  Status status_;
  bool lives_ = true, published_ = false;
  std::uint64_t process_ = 1;
  std::uint64_t ticks_ = 0;
  std::optional<RunningPass> pass_;
  Nanos pass_ends_ = kNever;      // as planned; kNever: it still waits
  bool pass_is_counted_ = false;  // the warm-up had arrived when it began
  std::vector<SpanShape> shapes_;
  std::unordered_map<std::uint64_t, std::uint64_t> arriving_;  // slots that loads write: their transfer
  std::unordered_map<std::uint64_t, MoveParts> targets_;       // of loads, by move
  std::unordered_map<std::uint64_t, Ledger::Load> moving_;     // what has not ended, by move
  std::unordered_map<std::uint64_t, MoveResult> at_once_;      // moves that take no link: their results
  std::unordered_map<std::uint64_t, Move> writes_;      // to the disk, by move, where there are restarts
  std::unordered_map<std::uint64_t, PeerPlace> gives_;  // to peers, by move
  // Where hidden states are projected on arrival: the load whose layers are watched, how many blocks of it
  // are hidden, and how many layers are projected; and when the processor has projected all.
  std::uint64_t watched_ = 0, watched_blocks_ = 0;
  std::uint32_t watched_layers_ = 0;
  Nanos projector_free_ = 0;
  Outbox outbox_;
  Asides asides_;
  // Of the pass that runs, the spans of asides: how many tokens of each have state behind it.
  struct Computing {
    std::size_t span = 0;
    RequestId request;
    std::uint32_t tokens = 0;
  };
  std::vector<Computing> computing_;
};

}  // namespace loci::sim
