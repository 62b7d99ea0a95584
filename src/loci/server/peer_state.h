// SPDX-License-Identifier: Apache-2.0
// A server's part in the exchange of state between members of a cluster: it answers other members, asks them,
// and knows who they are.
#pragma once

#include <spdlog/logger.h>

#include <functional>
#include <memory>
#include <string_view>

#include "loci/base/status.h"
#include "loci/cluster/cluster_secret.h"
#include "loci/cluster/member_watch.h"
#include "loci/cluster/peers/peer_server.h"
#include "loci/cluster/peers/peer_store.h"
#include "loci/compute/backend.h"
#include "loci/engine/run/engine.h"
#include "loci/model/model_spec.h"
#include "loci/serve/generation/ask_for_prefill.h"
#include "loci/serve/http/http_message.h"
#include "loci/server/server_config.h"

namespace loci {

// All null: the server takes no part.
struct PeerState {
  std::shared_ptr<PeerServer> server;
  std::shared_ptr<PeerList> list;
  std::unique_ptr<MemberWatch> watch;  // fills the list
  std::unique_ptr<PeerSource> source;
  // ApiServices::name_prompt.
  std::function<PromptNames(const HttpRequest& request, std::string_view id)> name_prompt;
  std::function<FeedStats()> feed_stats;  // ApiServices::feed_stats
  AskForPrefill ask_for_prefill;          // GenerationServices::ask_for_prefill
  std::uint32_t vocabulary = 0;           // the model's

  std::uint16_t port() const { return server ? server->port() : 0; }
  // From now on other members get answers.
  void start(Engine& engine);
  // Call it before the engine is destroyed.
  void stop();
};

// True if the server joins a cluster and peer_port is not absent.
bool takes_part_in_peers(const ServerConfig& config);
// For a server that takes part and has a `secret`: listens, and wraps the shared store of `options` in a
// source of blocks that asks the peers first. Errors name peer_port or host.
Result<PeerState> open_peer_state(const ServerConfig& config, const std::optional<ClusterSecret>& secret,
                                  const ModelSpec& spec, const BackendInfo& backend, EngineOptions& options,
                                  const Clock& clock, std::shared_ptr<spdlog::logger> log);
// From now on the server knows those of the members that serve the same state as `self`.
void know_peers(PeerState& peers, const Member& self, const MemberList& members);
// From now on the server knows its peers: all members but `self` that serve the same state. Errors: those of
// open_members().
Status watch_peers(PeerState& peers, const ServerConfig& config, const Member& self,
                   std::shared_ptr<spdlog::logger> log);

}  // namespace loci
