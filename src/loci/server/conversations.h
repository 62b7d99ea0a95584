// SPDX-License-Identifier: Apache-2.0
// The store of conversations as a server opens and keeps it.
#pragma once

#include <memory>

#include "loci/base/status.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/workers/worker_pool.h"

namespace loci {

struct ServerParts;

// Opens the store that the configuration names, if it names one; turns that an earlier server left unfinished
// are marked failed. Errors name store.
Status open_conversations(ServerParts& parts);

// Begins what is done to the store while the server runs: deletion beyond the limits, and, where other
// servers use it too, renewal of this one's claims. After the services are there.
void keep_conversations(ServerParts& parts);

// Ends `thread`, the store's, with the calls that run there. Those of a database server that stands still are
// given up after some seconds: what they were about to write is not known to be there, and nobody is told
// that it is. `store` may be null.
void end_conversations(std::unique_ptr<WorkerPool>& thread, ConversationStore* store);

}  // namespace loci
