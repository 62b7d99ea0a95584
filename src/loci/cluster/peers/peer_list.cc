// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/peer_list.h"

#include <algorithm>
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

void PeerList::note_computed(const std::string& host, std::uint16_t port) {
  const MutexLock lock(mutex_);
  const auto at = std::ranges::find_if(
      peers_, [&](const PeerAddress& one) { return one.host == host && one.port == port; });
  if (at != peers_.end() && computed_) computed_(*at);
}

void PeerList::listen_to_notes(std::function<void(PeerAddress)> computed) {
  const MutexLock lock(mutex_);
  computed_ = std::move(computed);
}

}  // namespace loci
