// SPDX-License-Identifier: Apache-2.0
// Opens the store of conversations for a server, looks after it while the server runs, and closes it.
#pragma once

#include <spdlog/logger.h>

#include <memory>

#include "loci/base/status.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/workers/worker_pool.h"

namespace loci {

struct ServerParts;

// Opens the store that the configuration names, if it names one; turns that an earlier server left unfinished
// are marked failed. Errors name store.
Status open_conversations(ServerParts& parts);

// Begins the store's regular work: deletion beyond the limits and, where other servers use the store too,
// renewal of this server's claims. Call it after the services are there.
void keep_conversations(ServerParts& parts);

// Ends `thread`, on which the store's calls run. Calls to a database server that does not answer are given up
// after some seconds, or at once if the system has no thread left to measure them. Nobody knows whether their
// writes took place, so nobody is told that they did. `store` may be null.
void end_conversations(std::unique_ptr<WorkerPool>& thread, ConversationStore* store, spdlog::logger& log);

}  // namespace loci
