// SPDX-License-Identifier: Apache-2.0
// How a server, a front and `loci cluster` come to a cluster's members by their flags.
#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <string>

#include "loci/base/status.h"
#include "loci/cli/serve_flags.h"
#include "loci/cluster/member_table.h"
#include "loci/cluster/membership.h"
#include "loci/serve/served_model.h"

namespace loci {

// The members in that database. Errors name --join or --cluster-secret.
Result<std::unique_ptr<MemberTable>> open_members(const std::string& url, const std::string& secret_file);

// Checks that who reads the members there can reach this server where it says it is; logs a warning where
// only this machine can. Errors: kInvalidArgument naming --advertise (a loopback address that nobody asked
// for, while the database is on another machine: a member there would ask whatever listens on its own), or
// --join.
Status check_advertised(const ServeFlags& flags, spdlog::logger& log);

// The server, which listens on `port` and serves `served`, becomes a member. Errors: as of
// MemberTable::join(), naming --join.
Result<std::unique_ptr<Membership>> join_cluster(std::unique_ptr<MemberTable> table, const ServeFlags& flags,
                                                 std::uint16_t port, const ServedModel& served,
                                                 std::shared_ptr<spdlog::logger> log);

}  // namespace loci
