// SPDX-License-Identifier: Apache-2.0
// State that the members of a cluster give one another, as a server takes part in it: what answers them, what
// asks them, and who they are.
#pragma once

#include <spdlog/logger.h>

#include <memory>

#include "loci/base/status.h"
#include "loci/cluster/cluster_secret.h"
#include "loci/cluster/member_watch.h"
#include "loci/cluster/peers/peer_server.h"
#include "loci/cluster/peers/peer_store.h"
#include "loci/compute/backend.h"
#include "loci/engine/run/engine.h"
#include "loci/model/model_spec.h"
#include "loci/server/server_config.h"

namespace loci {

// All null: it takes no part.
struct PeerState {
  std::shared_ptr<PeerServer> server;
  std::shared_ptr<PeerList> list;
  std::unique_ptr<MemberWatch> watch;  // fills the list
  std::unique_ptr<PeerSource> source;

  std::uint16_t port() const { return server ? server->port() : 0; }
  // Members are answered from now on.
  void start(Engine& engine);
  // Before the engine goes.
  void stop();
};

// A server that joins a cluster, and is not told otherwise.
bool takes_part_in_peers(const ServerConfig& config);
// Of one that takes part, whose `secret` is there: listens, and puts the source of blocks that
// asks the peers before the shared store of `options`. Errors name peer_port or host.
Result<PeerState> open_peer_state(const ServerConfig& config, const std::optional<ClusterSecret>& secret,
                                  const ModelSpec& spec, const BackendInfo& backend, EngineOptions& options,
                                  const Clock& clock, std::shared_ptr<spdlog::logger> log);
// From now on it knows its peers: the members but `self` that serve the same state. Errors: open_members()'s.
Status watch_peers(PeerState& peers, const ServerConfig& config, const Member& self,
                   std::shared_ptr<spdlog::logger> log);

}  // namespace loci
