// SPDX-License-Identifier: Apache-2.0
// How many requests that read each tenant has at the same time: each of them holds a connection for as long
// as its client takes to read. Counted by this server for itself, beside the limits of requests that compute
// or store (tenant_limiter.h). Without a limit of their tenant's they are counted together, whoever they are
// of: behind a proxy all clients have one address.
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
        : places_(std::exchange(other.places_, nullptr)), tenant_(std::move(other.tenant_)) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(places_, other.places_);
      std::swap(tenant_, other.tenant_);
      return *this;
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() {
      if (places_ != nullptr) places_->give_back(tenant_);
    }

   private:
    friend class ReadPlaces;
    Place(ReadPlaces* places, std::string tenant) : places_(places), tenant_(std::move(tenant)) {}

    ReadPlaces* places_;  // null: moved from
    std::string tenant_;
  };

  // `tenant`: empty: of all that have no limit of their own. Absent: the tenant has `most` of them, or more.
  // O(log tenants).
  std::optional<Place> take(const std::string& tenant, std::uint32_t most) {
    std::uint32_t& taken = taken_[tenant];
    if (taken >= most) {
      if (taken == 0) taken_.erase(tenant);
      return std::nullopt;
    }
    ++taken;
    return Place(this, tenant);
  }

 private:
  void give_back(const std::string& tenant) {
    const auto found = taken_.find(tenant);
    if (--found->second == 0) taken_.erase(found);
  }

  std::map<std::string, std::uint32_t> taken_;  // by tenant; more than 0
};

}  // namespace loci
