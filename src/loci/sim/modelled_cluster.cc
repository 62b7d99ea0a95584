// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/modelled_cluster.h"

#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/random.h"

namespace loci::sim {
namespace {

MemberRole role_of(const ClusterOptions& options, std::uint32_t instance) {
  if (options.prefills == 0) return MemberRole::kBoth;
  return instance < options.prefills ? MemberRole::kPrefill : MemberRole::kDecode;
}

ModelledPeers::Ways peer_ways(const WorldOptions& options) {
  const ClusterOptions& cluster = options.cluster;
  ModelledPeers::Ways ways{.latency = cluster.network.latency,
                           .rounds = cluster.peer_rounds,
                           .rounds_bytes = cluster.peer_rounds_bytes,
                           .first_asking = cluster.prefills_read ? 0 : cluster.prefills};
  for (const CoreGroup& group : options.core.groups) ways.block_bytes += group.block_bytes;
  return ways;
}

}  // namespace

ModelledCluster::ModelledCluster(const WorldOptions& options, Agenda& agenda, Clients& clients,
                                 ModelledPeers::Instances& instances, ClusterReport& report)
    : options_(options),
      agenda_(agenda),
      clients_(clients),
      instances_(instances),
      report_(report),
      peers_(agenda, instances, peer_ways(options)),
      prefills_(agenda, instances, options.cluster.network.latency,
                options.cluster.reads_early && options.core.reuse ? options.core.max_running : 0),
      feeds_(options.cluster.fronts, std::vector<Feed>(instances.size())),
      renewed_at_(instances.size()) {
  const auto answers = [this](std::uint32_t instance, std::uint64_t process) {
    return instances_[instance]->lives() && instances_[instance]->process() == process;
  };
  for (std::uint32_t i = 0; i < instances.size(); ++i)
    rows_.push_back({.instance = i, .role = role_of(options.cluster, i)});
  for (std::uint32_t f = 0; f < options.cluster.fronts; ++f)
    fronts_.push_back(
        std::make_unique<ModelledFront>(options.cluster, mix64(options.core.seed ^ f), answers));
}

void ModelledCluster::begin() {
  update_fronts();
  agenda_.add({agenda_.now() + kMemberRenewal, Happens::kMembers, 0, 0});
}

// --- requests ---

std::uint32_t ModelledCluster::front_of(RequestId id) const {
  return static_cast<std::uint32_t>(mix64(id.value) % fronts_.size());
}

void ModelledCluster::arrive(const Arrival& arrival) {
  fronts_[front_of(arrival.request)]->take(arrival, clients_.beginning_of(arrival.request));
  send(arrival.request);
}

void ModelledCluster::send(RequestId id) {
  ModelledFront& front = *fronts_[front_of(id)];
  const std::optional<ModelledFront::Sent> sent = front.send(id, agenda_.now());
  if (!sent) {
    const bool was_lost = clients_.record(id).moved > 0;
    report_.lost += was_lost;
    return clients_.end(id, was_lost ? Outcome::kFailed : Outcome::kRejected);
  }
  where_[id.value] = sent->instance;
  if (sent->prefill)
    prefills_.ask(clients_.asked(id), front.names(id), {.decode = sent->instance, .prefill = *sent->prefill},
                  sent->begin_limit);
  else
    instances_[sent->instance]->arrive(clients_.asked(id), front.names(id));
}

void ModelledCluster::go_on(const ModelledPrefills::Ended& ended) {
  const RequestId id = ended.request;
  ModelledFront& front = *fronts_[front_of(id)];
  front.prefilled(id, ended.end, agenda_.now());
  report_.read_early += ended.reads.tokens();
  ++(ended.end == PrefillEnd::kDone ? report_.prefilled : report_.prefills_failed);
  clients_.prefilled(id, ended.end == PrefillEnd::kDone ? ended.computed : ended.reads.tokens(), ended.reads);
  instances_[where_.at(id.value)]->arrive(clients_.asked(id), front.names(id));
}

void ModelledCluster::cancel(RequestId id) {
  const auto at = where_.find(id.value);
  if (prefills_.waits(id)) {
    prefills_.leave(id);
    clients_.end(id, Outcome::kCancelled);
    return;
  }
  if (at != where_.end()) instances_[at->second]->step(Cancel{id});
}

void ModelledCluster::settle() {
  for (const RequestId id : clients_.take_begun()) fronts_[front_of(id)]->begun(id, agenda_.now());
  for (const RequestId id : clients_.take_ended()) {
    fronts_[front_of(id)]->ended(id, agenda_.now());
    where_.erase(id.value);
  }
  for (std::uint32_t i = 0; i < instances_.size(); ++i) {
    peers_.take_from(i);
    prefills_.take_from(i);
    if (!instances_[i]->take_published()) continue;
    for (std::uint32_t f = 0; f < fronts_.size(); ++f) schedule_feed(f, i, kFeedPeriod);
  }
}

// --- deaths ---

void ModelledCluster::die(std::uint32_t instance) {
  ModelledInstance& dead = *instances_[instance];
  dead.die();
  peers_.died(instance);
  prefills_.died(instance);
  for (const auto& front : fronts_) front->read_feed(instance, nullptr, agenda_.now());
  std::vector<RequestId> requests;
  for (const auto& [id, at] : where_) {
    if (at == instance) requests.push_back(RequestId(id));
  }
  for (const RequestId id : requests) {
    where_.erase(id.value);
    if (prefills_.waits(id)) prefills_.leave(id);
    if (!fronts_[front_of(id)]->lost(id)) {
      ++report_.lost;
      clients_.end(id, Outcome::kFailed);
      continue;
    }
    ++report_.moved;
    clients_.repeat(id);
    send(id);
  }
  const Nanos away = dead.faults().until_return();
  if (clients_.is_open()) agenda_.add({agenda_.now() + away, Happens::kReturn, instance, 0});
  settle();
  check();
}

void ModelledCluster::come_back(std::uint32_t instance) {
  const DiskAfterDeath disk = instances_[instance]->faults().disk_after_death();
  instances_[instance]->come_back(disk);
}

void ModelledCluster::take(const Happening& one) {
  switch (one.what) {
    case Happens::kReturn: come_back(one.whose); break;
    case Happens::kPeers: peers_.arrive(one.which); break;
    case Happens::kPrefill:
      if (const auto ended = prefills_.arrive(one.which)) go_on(*ended);
      break;
    case Happens::kFeed: read_feed(static_cast<std::uint32_t>(one.which), one.whose); break;
    case Happens::kMembers: renew_members(); break;
    default: LOCI_CHECK(false, "a cluster knows what happens to it");
  }
}

// --- members and feeds ---

void ModelledCluster::renew_members() {
  for (std::uint32_t i = 0; i < instances_.size(); ++i) {
    if (!instances_[i]->lives()) continue;
    const CoreStats stats = instances_[i]->core().stats();
    rows_[i] = {i, instances_[i]->process(), stats.running, stats.queued, role_of(options_.cluster, i)};
    renewed_at_[i] = agenda_.now();
  }
  update_fronts();
  if (clients_.is_open()) agenda_.add({agenda_.now() + kMemberRenewal, Happens::kMembers, 0, 0});
}

void ModelledCluster::update_fronts() {
  std::vector<ModelledFront::Row> listed;
  for (std::uint32_t i = 0; i < rows_.size(); ++i) {
    if (agenda_.now() - renewed_at_[i] < kMemberLifetime) listed.push_back(rows_[i]);
  }
  for (std::uint32_t f = 0; f < fronts_.size(); ++f) {
    for (const std::uint32_t instance : fronts_[f]->update(listed, agenda_.now())) {
      feeds_[f][instance].not_before = 0;
      schedule_feed(f, instance, 1);
    }
  }
}

void ModelledCluster::schedule_feed(std::uint32_t front, std::uint32_t instance, Nanos after) {
  Feed& feed = feeds_[front][instance];
  if (std::exchange(feed.is_scheduled, true)) return;
  agenda_.add({std::max(agenda_.now() + after, feed.not_before), Happens::kFeed, instance, front});
}

void ModelledCluster::read_feed(std::uint32_t front, std::uint32_t instance) {
  Feed& feed = feeds_[front][instance];
  feed.is_scheduled = false;
  const std::optional<Nanos> next =
      fronts_[front]->read_feed(instance, instances_[instance]->feed(), agenda_.now());
  if (next) feed.not_before = agenda_.now() + *next;
}

// --- the sums ---

void ModelledCluster::check() const {
  std::size_t live = 0;
  for (const auto& front : fronts_) live += front->open();
  LOCI_CHECK(live == where_.size() && live == clients_.live().size(),
             "each request is at one instance, or has ended");
  peers_.check(false);
}

void ModelledCluster::finish(bool stopped) {
  if (!stopped) {
    check();
    peers_.check(true);
    LOCI_CHECK(where_.empty() && prefills_.empty(), "all requests end");
  }
  for (const auto& front : fronts_) {
    const ModelledFront::Counts& counts = front->counts();
    for (std::size_t i = 0; i < kRoutedWhys; ++i) report_.chosen[i] += counts.chosen[i];
    report_.refused += counts.refused;
    report_.feed_gaps += counts.gaps;
    report_.feed_changes += counts.changes;
    report_.feeds_broken += counts.feeds_broken;
  }
  report_.tokens_again = clients_.counts().again;
  report_.prompts_again = clients_.counts().prompts_again;
  const ModelledPeers::Counts& peers = peers_.counts();
  report_.peer_asks = peers.asks;
  report_.peer_blocks = peers.blocks_got;
  report_.peer_blocks_gone = peers.blocks_gone;
  report_.peer_bytes_given = peers.given;
  report_.peer_bytes_got = peers.got;
  report_.peer_bytes_lost = peers.lost;
}

}  // namespace loci::sim
