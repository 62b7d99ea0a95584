// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/peer_table.h"

#include <algorithm>
#include <utility>

namespace loci {

PeerTable::Change PeerTable::set(const std::vector<PeerAddress>& listed) {
  Change change;
  std::map<std::uint32_t, std::shared_ptr<Peer>> next;
  for (const PeerAddress& address : listed) {
    const auto is_it = [&](const auto& one) { return one.second->address == address; };
    if (std::any_of(next.begin(), next.end(), is_it)) continue;
    const auto known = std::find_if(peers_.begin(), peers_.end(), is_it);
    if (known != peers_.end()) {
      next.insert(*known);
      continue;
    }
    auto peer = std::make_shared<Peer>();
    peer->address = address;
    peer->number = ++last_number_;
    next.emplace(peer->number, peer);
    change.added.push_back(std::move(peer));
  }
  for (const auto& [number, peer] : peers_) {
    if (!next.contains(number)) change.removed.push_back(number);
  }
  peers_ = std::move(next);
  return change;
}

std::shared_ptr<Peer> PeerTable::find(std::uint32_t number) const {
  const auto at = peers_.find(number);
  return at == peers_.end() ? nullptr : at->second;
}

void PeerTable::note_found(const PeerAddress& address, Nanos now) {
  for (const auto& [number, peer] : peers_) {
    if (peer->address == address) peer->found_at = now;
  }
}

std::vector<std::shared_ptr<Peer>> PeerTable::choose(std::size_t most, Nanos now) {
  std::vector<std::shared_ptr<Peer>> up;
  for (const auto& [number, peer] : peers_) {
    if (peer->is_up(now) && peer->questions < kQuestionsMax) up.push_back(peer);
  }
  if (up.size() <= most) return up;
  std::sort(up.begin(), up.end(), [](const auto& a, const auto& b) {
    return std::pair(-a->found_at, a->number) < std::pair(-b->found_at, b->number);
  });
  const std::size_t first = most - most / 4;
  std::vector<std::shared_ptr<Peer>> chosen(up.begin(), up.begin() + static_cast<std::ptrdiff_t>(first));
  while (chosen.size() < most) chosen.push_back(up[first + next_other_++ % (up.size() - first)]);
  return chosen;
}

std::size_t PeerTable::up(Nanos now) const {
  return static_cast<std::size_t>(
      std::count_if(peers_.begin(), peers_.end(), [now](const auto& one) { return one.second->is_up(now); }));
}

}  // namespace loci
