// SPDX-License-Identifier: Apache-2.0
// How many requests that read each party (Exchange::party()) has at the same time: each of them holds a
// connection for as long as its client takes to read. Counted by this server for itself, beside the limits of
// requests that compute or store (tenant_limiter.h).
//
// Thread-compatible: the network thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace loci {

class ReadPlaces {
 public:
  ReadPlaces() = default;
  ReadPlaces(const ReadPlaces&) = delete;
  ReadPlaces& operator=(const ReadPlaces&) = delete;

  // Move-only; dropping it gives the place back. Goes before the places do.
  class Place {
   public:
    Place(Place&& other) noexcept
        : places_(std::exchange(other.places_, nullptr)), party_(std::move(other.party_)) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(places_, other.places_);
      std::swap(party_, other.party_);
      return *this;
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() {
      if (places_ != nullptr) places_->give_back(party_);
    }

   private:
    friend class ReadPlaces;
    Place(ReadPlaces* places, std::string party) : places_(places), party_(std::move(party)) {}

    ReadPlaces* places_;  // null: moved from
    std::string party_;
  };

  // Absent: the party has `most` of them, or more. O(log parties).
  std::optional<Place> take(const std::string& party, std::uint32_t most) {
    std::uint32_t& taken = taken_[party];
    if (taken >= most) {
      if (taken == 0) taken_.erase(party);
      return std::nullopt;
    }
    ++taken;
    return Place(this, party);
  }
  std::size_t parties() const { return taken_.size(); }

 private:
  void give_back(const std::string& party) {
    const auto found = taken_.find(party);
    if (--found->second == 0) taken_.erase(found);
  }

  std::map<std::string, std::uint32_t> taken_;  // by party; more than 0
};

}  // namespace loci
