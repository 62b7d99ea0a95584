// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/peer_list.h"

#include <utility>

namespace loci {

void PeerList::set(std::vector<PeerAddress> peers) {
  const MutexLock lock(mutex_);
  peers_ = std::move(peers);
  if (hear_) hear_(peers_);
}

void PeerList::listen(std::function<void(std::vector<PeerAddress>)> hear) {
  const MutexLock lock(mutex_);
  hear_ = std::move(hear);
  if (hear_) hear_(peers_);
}

}  // namespace loci
