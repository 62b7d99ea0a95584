// SPDX-License-Identifier: Apache-2.0
// A connection to a Redis Cluster: to its nodes, each command to the one that has its key's slot. Replies
// come in the order of the commands, whichever nodes they come from:
//
//   sent      STRLEN a     STRLEN b             STRLEN c     STRLEN d
//   to        node 1       node 2               node 1       nobody: node 3 is away
//   replies   :737448      MOVED to node 1      :0           (kAway)
//                          asks node 1 by another connection: :0
//
// Redirections are followed, five at most for a command, over connections beside those of the commands, so
// that no order is upset. A node that fails is left alone (redis_topology.h); the replies to what it was sent
// are kAway.
#pragma once

#include <memory>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/shared/redis_connection.h"
#include "loci/memory/shared/redis_topology.h"

namespace loci {

// A wait that ended sooner, because whoever asked had no more time, has shown nothing of the node or the
// store.
inline constexpr Nanos kRedisFairWait = 10 * kNanosPerMilli;

// When a cluster's connection makes those to its nodes.
enum class RedisDialing : std::uint8_t {
  kAsNeeded,
  // At once, for users whose deadlines are too short to connect by. is_open() is then false if a node that is
  // not away has none.
  kAtOnce,
};

// Connects to the seed, or, of a cluster, to its nodes, of which one must be there. The first time that the
// seed is reached it is asked whether it is a cluster's. One that says so later only, by a redirection,
// becomes a cluster then, and the connection fails. Errors: as RedisConnection::open().
Result<std::unique_ptr<RedisConnection>> open_redis(RedisTopology& topology, RedisDialing dialing,
                                                    const Clock& clock, const RedisStop& stop,
                                                    Nanos deadline);

// Reads the map again and tries the nodes that are away. False: some still are. Waits half a second for each
// node at most.
bool tend_redis_cluster(RedisTopology& topology, const Clock& clock, const RedisStop& stop);

}  // namespace loci
