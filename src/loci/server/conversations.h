// SPDX-License-Identifier: Apache-2.0
// The store of conversations as a server opens and keeps it.
#pragma once

#include "loci/base/status.h"
#include "loci/server/server_parts.h"

namespace loci {

// Opens the store that the configuration names, if it names one; turns that an earlier server left unfinished
// are marked failed. Errors name store.
Status open_conversations(ServerParts& parts);

// Begins what is done to the store while the server runs: deletion beyond the limits, and, where other
// servers use it too, renewal of this one's claims. After the services are there.
void keep_conversations(ServerParts& parts);

}  // namespace loci
