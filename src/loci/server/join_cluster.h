// SPDX-License-Identifier: Apache-2.0
// How a server, a front and `loci cluster` come to the members of a cluster.
#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <string>

#include "loci/base/status.h"
#include "loci/cluster/member_table.h"
#include "loci/cluster/membership.h"
#include "loci/serve/generation/served_model.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/workers/worker_pool.h"
#include "loci/server/peer_state.h"
#include "loci/server/server_config.h"

namespace loci {

// The members in that database. Errors name join or cluster_secret.
Result<std::unique_ptr<MemberTable>> open_members(const std::string& url, const std::string& secret_file);

// Checks that who reads the members there can reach this server where it says it is; logs a warning where
// only this machine can. Errors: kInvalidArgument naming advertise (a loopback address that nobody asked
// for, while the database is on another machine: a member there would ask whatever listens on its own), or
// join.
Status check_advertised(const ServerConfig& config, spdlog::logger& log);

// The server, which listens on `port` and serves `served`, becomes a member; `store` is its name in the store
// of conversations. `peers` learns who the others are. Errors: as of MemberTable::join(), naming join.
Result<std::unique_ptr<Membership>> join_cluster(std::unique_ptr<MemberTable> table,
                                                 const ServerConfig& config, std::uint16_t port,
                                                 const ServedModel& served, std::string store,
                                                 PeerState& peers, std::shared_ptr<spdlog::logger> log);

// While this server runs, responses fail that other servers of its store left in the middle. `store`, which
// may be null, outlives `store_thread`; `membership`: null: of no cluster.
void watch_other_servers(WorkerPool& store_thread, ConversationStore* store,
                         const std::shared_ptr<Membership>& membership, std::shared_ptr<spdlog::logger> log);

}  // namespace loci
