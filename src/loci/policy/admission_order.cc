// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/admission_order.h"

#include <fmt/format.h>

#include <algorithm>

namespace loci {
namespace {

class FirstCome final : public AdmissionOrder {
 public:
  bool looks_at_distance() const override { return false; }
  bool comes_first(const WaitingRequest& a, const WaitingRequest& b, Nanos) const override {
    return a.arrival < b.arrival;
  }
};

class NearestFirst final : public AdmissionOrder {
 public:
  bool looks_at_distance() const override { return true; }
  bool comes_first(const WaitingRequest& a, const WaitingRequest& b, Nanos) const override {
    return a.distance != b.distance ? a.distance < b.distance : a.arrival < b.arrival;
  }
};

class RelaxedNearestFirst final : public AdmissionOrder {
 public:
  bool looks_at_distance() const override { return true; }
  bool changes_with_time() const override { return true; }
  bool comes_first(const WaitingRequest& a, const WaitingRequest& b, Nanos now) const override {
    const __int128 of_a = priority(a, now), of_b = priority(b, now);
    return of_a != of_b ? of_a > of_b : a.arrival < b.arrival;
  }

 private:
  static __int128 priority(const WaitingRequest& request, Nanos now) {
    return static_cast<__int128>(now - request.since) *
           (kNowhere + kTierStep - std::min(request.distance, kNowhere));
  }
};

}  // namespace

Result<std::unique_ptr<const AdmissionOrder>> make_admission_order(std::string_view name) {
  using Order = std::unique_ptr<const AdmissionOrder>;
  if (name == "fcfs") return Order(std::make_unique<FirstCome>());
  if (name == "fpf") return Order(std::make_unique<NearestFirst>());
  if (name == "relaxed-fpf") return Order(std::make_unique<RelaxedNearestFirst>());
  return invalid_argument(fmt::format("expected one of {}, {}, {}, found '{}'", kAdmissionOrders[0],
                                      kAdmissionOrders[1], kAdmissionOrders[2], name),
                          "admission");
}

}  // namespace loci
