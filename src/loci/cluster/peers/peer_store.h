// SPDX-License-Identifier: Apache-2.0
// The state of other members of the cluster, as a source of blocks. Each question goes to the peers that
// serve the same state, and to the shared store, if there is one. Each read goes to a peer or store that said
// that it has the block. To the core both are one tier, the shared one (docs/decisions/peers.md says what
// that costs).
//
// A block that a peer fails to bring counts as gone (kNotFound), so that it is computed; what transfer_limit
// cuts off behind blocks that came is kDeadlineExceeded, so that the link's rate is learnt. A peer that
// repeatedly fails to answer or to give is left alone for a while. Other errors of reads come from the store.
//
// It has one thread for all peers; the store has threads of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/cluster/peers/peer_list.h"
#include "loci/cluster/peers/peer_rounds.h"
#include "loci/memory/shared/shared_format.h"
#include "loci/memory/shared/shared_store.h"
#include "loci/serve/http/tls.h"

namespace loci {

struct PeerStoreOptions {
  std::shared_ptr<PeerList> peers;
  TlsContext tls;
  std::string state;                   // kPeerStateHeader
  std::vector<SharedGroup> groups;     // the backend's
  std::unique_ptr<SharedStore> store;  // the shared store; null: none
  std::size_t asked_max = 8;           // how many peers are asked for one request
  // In how many rounds the layers of a read come at most, if they are wanted as soon as may be
  // (peer_rounds()).
  std::uint8_t rounds = kPeerRounds;
  std::uint64_t rounds_bytes = kPeerRoundsBytes;
  // A read ends when nothing has come for silence_limit, or when it has taken transfer_limit. The latter is
  // less than a load may take (MoverOptions::load_limit), after which nobody wants the rest.
  Nanos silence_limit = 3 * kNanosPerSecond;
  Nanos transfer_limit = 8 * kNanosPerSecond;
  std::function<void(const std::string&)> warn = [](const std::string&) {};  // called on its thread
};

// `clock` must outlive it. Its destructor ends all running operations at once and calls back for each.
std::unique_ptr<SharedStore> make_peer_store(PeerStoreOptions options, const Clock& clock);

}  // namespace loci
