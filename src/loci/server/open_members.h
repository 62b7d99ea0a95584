// SPDX-License-Identifier: Apache-2.0
// How a server, a front and `loci cluster` find the members of a cluster.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/cluster/member_table.h"

namespace loci {

// Checks that the URL is one of PostgreSQL. Errors: kInvalidArgument, without a field and without the URL,
// which may have a password.
Status check_join_url(std::string_view url);

// The members in that database. Errors name join or cluster_secret.
Result<std::unique_ptr<MemberTable>> open_members(const std::string& url, const std::string& secret_file);

}  // namespace loci
