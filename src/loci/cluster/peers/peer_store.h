// SPDX-License-Identifier: Apache-2.0
// The state of other members of the cluster, as a source of blocks: each question goes to the peers that
// serve the same state, and to the shared store behind it where there is one; each read to who said that it
// has the block. To the core both are one tier, the shared one (docs/decisions/peers.md says what that
// costs).
//
// What a peer fails to bring is gone (kNotFound), so that it is computed; a peer that fails again and again,
// in what it answers or in what it gives, is left alone for a while. Other errors of reads are the store's.
//
// Threads: one, for all peers; the store behind it has its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/cluster/peers/peer_list.h"
#include "loci/memory/shared/shared_format.h"
#include "loci/memory/shared/shared_store.h"
#include "loci/serve/http/tls.h"

namespace loci {

struct PeerStoreOptions {
  std::shared_ptr<PeerList> peers;
  TlsContext tls;
  std::string state;                   // kPeerStateHeader
  std::vector<SharedGroup> groups;     // the backend's
  std::unique_ptr<SharedStore> store;  // that servers share too; null: none
  std::size_t asked_max = 8;           // peers, for one request
  // A read ends when nothing came for so long, or it has taken so long: less than a load may take
  // (MoverOptions::load_limit), after which nobody wants the rest.
  Nanos silence_limit = 3 * kNanosPerSecond;
  Nanos transfer_limit = 8 * kNanosPerSecond;
  std::function<void(const std::string&)> warn = [](const std::string&) {};  // on its thread
};

// `clock` must outlive it. Its destructor ends what goes on at once and calls back for all of it.
std::unique_ptr<SharedStore> make_peer_store(PeerStoreOptions options, const Clock& clock);

}  // namespace loci
