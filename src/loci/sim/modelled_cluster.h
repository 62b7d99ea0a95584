// SPDX-License-Identifier: Apache-2.0
// Several instances behind fronts, in virtual time: which instance has which request and which one computes
// its prompt, deaths and returns of instances, the rows of members, the feeds, and the peers' reads.
//
// An example, of a request that outlives two of three instances but one:
//
//     front 1    sends it to A         A dies: the reply's begin is with the client
//     front 1    sends it to B         the whole reply again; the client hears on where A ended
//
// If B died too the request would fail: it may be what ends instances (docs/cluster.md).
//
// At the end, and at each death, it checks that each request is at one instance or has ended, and that the
// bytes that peers give come or are lost. Thread-compatible. Deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "loci/sim/agenda.h"
#include "loci/sim/clients.h"
#include "loci/sim/modelled_front.h"
#include "loci/sim/modelled_instance.h"
#include "loci/sim/modelled_peers.h"
#include "loci/sim/modelled_prefills.h"

namespace loci::sim {

class ModelledCluster {
 public:
  // All must outlive it.
  ModelledCluster(const WorldOptions& options, Agenda& agenda, Clients& clients,
                  ModelledPeers::Instances& instances, ClusterReport& report);

  void begin();
  void arrive(const Arrival& arrival);
  void cancel(RequestId id);
  // The instance's process ends; its requests go on elsewhere.
  void die(std::uint32_t instance);
  void take(const Happening& one);
  // Takes what the last event did: replies that began and ended, and what instances have for others. After
  // each event.
  void settle();
  // Writes the report's figures, and checks that nothing is left, unless the run was stopped.
  void finish(bool stopped);

 private:
  // Of one front and one instance.
  struct Feed {
    bool is_scheduled = false;
    Nanos not_before = 0;
  };

  std::uint32_t front_of(RequestId id) const;
  void send(RequestId id);
  void go_on(const ModelledPrefills::Ended& ended);
  void come_back(std::uint32_t instance);
  void renew_members();
  void update_fronts();
  void schedule_feed(std::uint32_t front, std::uint32_t instance, Nanos after);
  void read_feed(std::uint32_t front, std::uint32_t instance);
  void check() const;

  const WorldOptions& options_;
  Agenda& agenda_;
  Clients& clients_;
  ModelledPeers::Instances& instances_;
  ClusterReport& report_;
  ModelledPeers peers_;
  ModelledPrefills prefills_;
  std::vector<std::unique_ptr<ModelledFront>> fronts_;
  std::vector<std::vector<Feed>> feeds_;          // by front, by instance
  std::vector<ModelledFront::Row> rows_;          // as they were renewed last, by instance
  std::vector<Nanos> renewed_at_;                 // by instance
  std::map<std::uint64_t, std::uint32_t> where_;  // live requests: their instance
};

}  // namespace loci::sim
