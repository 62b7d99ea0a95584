// SPDX-License-Identifier: Apache-2.0
#include "loci/server/open_members.h"

#include "loci/cluster/cluster_secret.h"
#include "loci/serve/store/open_store.h"

namespace loci {

Status check_join_url(std::string_view url) {
  if (is_store_url(url)) return {};
  return invalid_argument(
      "expected postgresql://..., found something else, which is not shown as it may have a password");
}

Result<std::unique_ptr<MemberTable>> open_members(const std::string& url, const std::string& secret_file) {
  if (secret_file.empty()) {
    return invalid_argument(
        "a cluster's members share a secret: give its file (`loci keys cluster FILE` makes one)",
        "cluster_secret");
  }
  LOCI_ASSIGN_OR_RETURN(const ClusterSecret secret, read_cluster_secret(secret_file));
  Result<std::unique_ptr<MemberTable>> table = MemberTable::open(url, cluster_member_key(secret));
  if (!table.ok()) return Status(table.status().code(), table.status().message(), "join");
  return table;
}

}  // namespace loci
