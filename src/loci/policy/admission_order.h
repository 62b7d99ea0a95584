// SPDX-License-Identifier: Apache-2.0
// In which order one tenant's waiting requests are admitted (Berkeley's prefix caching, §V.F), by how far
// from the device the state of their prompts is, in the mean over their tokens:
//
//   fcfs         first come, first served; distances are not looked at
//   fpf          the nearest prefix first, earlier arrivals first among equals. The most state is found
//                where it is fast; under load a request whose state is far may never be admitted
//   relaxed-fpf  the highest priority first: (now - arrival) * (4 - N), N the distance in tiers. No request
//                waits for ever: one that has waited for a time W is passed only by requests that arrived
//                within the first 3/4 W of it, so its turn comes when those are served, even if requests
//                arrive as fast as they leave
//
// Pure and stateless; integers alone. (Fairness among tenants comes first: admission.h.)
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/base/status.h"

namespace loci {

inline constexpr std::array<std::string_view, 3> kAdmissionOrders = {"fcfs", "fpf", "relaxed-fpf"};

// The mean over a prompt's tokens of where their state is: 0 on the device, kTierStep on the host, 2
// kTierStep on a disk, kNowhere where it is nowhere. So a beginning that all prompts share (a system prompt)
// brings a prompt nearer only by its part of the prompt.
inline constexpr std::uint32_t kTierStep = 1024;
inline constexpr std::uint32_t kNowhere = 3 * kTierStep;

struct WaitingRequest {
  std::uint64_t arrival = 0;  // counts arrivals
  Nanos since = 0;            // when it arrived
  std::uint32_t distance = kNowhere;
};

class AdmissionOrder {
 public:
  virtual ~AdmissionOrder() = default;
  // False: distances need not be known.
  virtual bool looks_at_distance() const = 0;
  // False: of two requests whose distances do not change the same one comes first at any time.
  virtual bool changes_with_time() const { return false; }
  // A strict weak order at each `now`, which is not before either has arrived.
  virtual bool comes_first(const WaitingRequest& a, const WaitingRequest& b, Nanos now) const = 0;
};

// Errors: kInvalidArgument (field "admission") naming the orders.
Result<std::unique_ptr<const AdmissionOrder>> make_admission_order(std::string_view name);

}  // namespace loci
