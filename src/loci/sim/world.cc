// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/world.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/random.h"
#include "loci/engine/log/event_log.h"
#include "loci/sim/agenda.h"
#include "loci/sim/clients.h"
#include "loci/sim/modelled_cluster.h"
#include "loci/sim/modelled_instance.h"

namespace loci::sim {
namespace {

// When the last conversation begins.
Nanos last_beginning(const Trace& trace) {
  Nanos last = 0;
  for (const Conversation& talk : trace.conversations) {
    if (!talk.turns.empty()) last = std::max(last, talk.turns.front().at);
  }
  return last;
}

class World {
 public:
  World(const Trace& trace, const WorldOptions& options)
      : options_(options), clients_(trace, options, agenda_, report_) {
    if (options.steady) report_.counted_until = last_beginning(trace);
  }

  Status open() {
    const std::uint32_t count = std::max(1u, options_.cluster.instances);
    for (std::uint32_t i = 0; i < count; ++i) {
      LOCI_ASSIGN_OR_RETURN(Core core, Core::make(options_.core));
      std::optional<EventLogWriter> log;
      if (!options_.event_log.empty()) {
        LOCI_ASSIGN_OR_RETURN(log,
                              EventLogWriter::create(options_.event_log, options_.core, LoggedSecret::kKept));
      }
      instances_.push_back(std::make_unique<ModelledInstance>(options_, i, std::move(core), std::move(log),
                                                              agenda_, clients_, report_));
    }
    if (options_.cluster.instances > 0)
      cluster_.emplace(options_, agenda_, clients_, instances_, report_.cluster);
    return {};
  }

  Result<WorldReport> run() {
    clients_.begin();
    for (const auto& instance : instances_) instance->begin();
    if (cluster_) cluster_->begin();
    while (first().status().ok() && !report_.stopped && happen()) {
      if (cluster_) cluster_->settle();
      if (options_.stop != nullptr && options_.stop->load()) report_.stopped = true;
    }
    LOCI_RETURN_IF_ERROR(first().status());
    finish();
    return std::move(report_);
  }

 private:
  const ModelledInstance& first() const { return *instances_.front(); }

  // Takes what happens next. False: nothing does.
  bool happen() {
    ModelledInstance* mover = nullptr;
    std::optional<Nanos> moved;
    for (const auto& instance : instances_) {
      const std::optional<Nanos> next = instance->next_transfer();
      if (!next || (moved && *moved <= *next)) continue;
      moved = next;
      mover = instance.get();
    }
    const std::optional<Nanos> next = agenda_.next();
    if (!next && !moved) return false;
    if (moved && (!next || *moved <= *next)) {
      agenda_.go_to(*moved);
      mover->end_transfers();
    } else {
      take(agenda_.take());
    }
    return true;
  }

  void take(const Happening& one) {
    switch (one.what) {
      case Happens::kDue: arrive(static_cast<std::uint32_t>(one.which)); break;
      case Happens::kCancel: cancel(one); break;
      case Happens::kRestart: cluster_ ? cluster_->die(one.whose) : restart(); break;
      case Happens::kReturn:
      case Happens::kPeers:
      case Happens::kPrefill:
      case Happens::kFeed:
      case Happens::kMembers: cluster_->take(one); break;
      default: instances_[one.whose]->take(one); break;
    }
  }

  void arrive(std::uint32_t conversation) {
    std::optional<Arrival> arrival = clients_.take_turn(conversation);
    if (!arrival) return;
    if (cluster_)
      cluster_->arrive(*arrival);
    else
      instances_.front()->arrive(*std::move(arrival), {});
  }

  void cancel(const Happening& one) {
    if (cluster_)
      cluster_->cancel(RequestId(one.which));
    else
      instances_.front()->take(one);
  }

  // The process ends where it stands, with its requests; the next one has what is on the disk.
  void restart() {
    ModelledInstance& instance = *instances_.front();
    instance.die();
    for (const RequestId id : clients_.live()) clients_.end(id, Outcome::kFailed);
    instance.come_back(instance.faults().disk_after_death());
  }

  void finish() {
    report_.duration = agenda_.now();
    for (const auto& instance : instances_) {
      if (instance->lives()) instance->add_counts();
      if (instance->lives() && !report_.stopped) instance->check_end();
    }
    report_.stats = first().core().stats();
    const Clients::Counts& told = clients_.counts();
    LOCI_CHECK(report_.sampled == told.told + told.again, "each sampled token was told, or came again");
    if (cluster_) cluster_->finish(report_.stopped);
  }

  const WorldOptions& options_;
  WorldReport report_;
  Agenda agenda_;
  Clients clients_;
  std::vector<std::unique_ptr<ModelledInstance>> instances_;
  std::optional<ModelledCluster> cluster_;
};

// What instances of a cluster are told at their start.
void set_peers(WorldOptions& options) {
  const ClusterOptions& cluster = options.cluster;
  options.machine.network_bytes_per_second = std::max<std::uint64_t>(1, cluster.network.bytes_per_second);
  if (!cluster.peers || cluster.instances < 2) return;
  constexpr std::uint32_t kRememberedMin = 16'384, kRememberedMax = 262'144;  // as a server does
  for (CoreGroup& group : options.core.groups)
    group.shared_blocks = std::clamp(group.block_count, kRememberedMin, kRememberedMax);
  options.core.writes_shared = false;
  options.core.shared_rounds = cluster.peer_rounds;
  options.core.costs.shared_read = {2 * cluster.network.latency, options.machine.network_bytes_per_second};
}

Status check_options(const WorldOptions& options) {
  const bool has_fronts = options.cluster.instances > 0;
  if ((options.faults.restarts > 0 || has_fronts) && !options.event_log.empty())
    return invalid_argument("expected one instance and no restarts, since a log is of one process",
                            "event_log");
  if (options.faults.away > 0 && !has_fronts)
    return invalid_argument("expected instances behind a front, found one server that stays away",
                            "faults.away_s");
  if (options.faults.disk_speed <= 0 && options.faults.disk_limit == kNever)
    return invalid_argument("expected a limit for a disk that does not answer", "faults.disk_limit");
  if (options.cluster.instances > kInstancesMax || options.cluster.fronts > kFrontsMax ||
      (has_fronts && options.cluster.fronts == 0))
    return invalid_argument("expected at most 64 instances and 1 to 16 fronts", "cluster");
  if (options.cluster.prefills > 0 &&
      (!options.cluster.peers || options.cluster.prefills >= options.cluster.instances))
    return invalid_argument("expected fewer than the instances, which read state from one another",
                            "cluster.prefills");
  return {};
}

}  // namespace

const char* outcome_name(Outcome outcome) {
  constexpr const char* kNames[kOutcomes] = {"waits",  "done",     "cancelled", "deadline",
                                             "failed", "rejected", "too_long"};
  return kNames[static_cast<std::size_t>(outcome)];
}

Result<WorldReport> run_world(const Trace& trace, const WorldOptions& options) {
  LOCI_RETURN_IF_ERROR(check_options(options));
  WorldOptions own = options;
  set_peers(own);
  World world(trace, own);
  LOCI_RETURN_IF_ERROR(world.open());
  return world.run();
}

}  // namespace loci::sim
