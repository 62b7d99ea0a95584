// SPDX-License-Identifier: Apache-2.0
// How a server becomes a member of a cluster (open_members.h).
#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <string>

#include "loci/base/status.h"
#include "loci/cluster/limits/cluster_limits.h"
#include "loci/cluster/member_table.h"
#include "loci/cluster/membership.h"
#include "loci/serve/generation/prefill.h"
#include "loci/serve/generation/resumed_reply.h"
#include "loci/serve/generation/served_model.h"
#include "loci/serve/http/http_message.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/workers/worker_pool.h"
#include "loci/server/peer_state.h"
#include "loci/server/server_config.h"

namespace loci {

// Checks that other members can reach this server at the address that it advertises. Logs a warning if only
// this machine can reach it. Errors: kInvalidArgument naming join, or naming advertise: a loopback address
// that nobody asked for, while the database is on another machine. Members on other machines would connect to
// themselves at that address.
Status check_advertised(const ServerConfig& config, spdlog::logger& log);

// Of a member that serves it: what its state is, and no name or place.
Member member_serving(const ServedModel& served);

// Makes the server a member; it listens on `port`, serves `served`, and is called `store` in the store of
// conversations. `peers` learns who the other members are. Errors: those of MemberTable::join(), naming join.
Result<std::unique_ptr<Membership>> join_cluster(std::unique_ptr<MemberTable> table,
                                                 const ServerConfig& config, std::uint16_t port,
                                                 const ServedModel& served, std::string store,
                                                 PeerState& peers, std::shared_ptr<spdlog::logger> log);

// For ApiServices::take_resumed: believes fronts with the secret in that file. Errors name cluster_secret.
Result<std::function<std::optional<ResumedReply>(HttpRequest& request)>> resumed_reader(
    const std::string& secret_file);

// For ApiServices::was_lost: likewise.
Result<std::function<bool(const HttpRequest& request)>> lost_reader(const std::string& secret_file);

// For ApiServices::read_prefill: likewise.
Result<std::function<std::optional<PrefillPlace>(const HttpRequest& request)>> prefill_reader(
    const std::string& secret_file);

// Counts tenants' limits together with the other members. `member`: this server's id. Errors:
// kInvalidArgument and kUnavailable naming join.
Result<std::unique_ptr<ClusterLimits>> open_cluster_limits(const ServerConfig& config, std::string member,
                                                           std::shared_ptr<spdlog::logger> log);

// While this server runs it marks responses as failed that other servers of the same store began and left
// unfinished. `store`, which may be null, outlives `store_thread`. `membership` is null if the server belongs
// to no cluster.
void watch_other_servers(WorkerPool& store_thread, ConversationStore* store,
                         const std::shared_ptr<Membership>& membership, std::shared_ptr<spdlog::logger> log);

}  // namespace loci
