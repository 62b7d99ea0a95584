// SPDX-License-Identifier: Apache-2.0
// Has another member compute a prompt's state (prefill_wire.h), for this server to read it as any state of a
// peer.
#pragma once

#include <memory>
#include <string>

#include "loci/cluster/peers/peer_list.h"
#include "loci/serve/generation/ask_for_prefill.h"
#include "loci/serve/http/tls.h"

namespace loci {

// `state`: the value of kPeerStateHeader. `peers` is told who has computed something, so that this member is
// asked first. What it returns makes a connection for each call and keeps none.
AskForPrefill prefill_caller(TlsContext tls, std::string state, std::shared_ptr<PeerList> peers);

}  // namespace loci
