// SPDX-License-Identifier: Apache-2.0
// Which members of the cluster serve state now.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "loci/base/mutex.h"

namespace loci {

// A member that serves state.
struct PeerAddress {
  std::string id;  // Member::id
  std::string host;
  std::uint16_t port = 0;  // Member::peer_port
  friend bool operator==(const PeerAddress&, const PeerAddress&) = default;
};

// The watch over the members sets the list; the store that asks peers listens to it. Thread-safe.
class PeerList {
 public:
  void set(std::vector<PeerAddress> peers);
  // Notes that the member that serves state there has just computed some that this server will ask for.
  void note_computed(const std::string& host, std::uint16_t port);
  // Calls `hear` with the list, and with each later one, until the listener is null. Calls come one at a
  // time, with the list's mutex held: `hear` passes the list on and takes no mutex itself.
  void listen(std::function<void(std::vector<PeerAddress>)> hear);
  // The same for what is noted: calls `computed` with the place of a member that is listed.
  void listen_to_notes(std::function<void(PeerAddress)> computed);

 private:
  Mutex mutex_;
  std::vector<PeerAddress> peers_ GUARDED_BY(mutex_);
  std::function<void(std::vector<PeerAddress>)> hear_ GUARDED_BY(mutex_);
  std::function<void(PeerAddress)> computed_ GUARDED_BY(mutex_);
};

}  // namespace loci
