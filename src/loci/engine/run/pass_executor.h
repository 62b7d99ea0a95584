// SPDX-License-Identifier: Apache-2.0
// The compute thread's part of a pass. It begins passes on the backend, ends them in order, and samples
// tokens that the device does not sample.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/mover/hidden_captures.h"
#include "loci/engine/run/constraint.h"
#include "loci/engine/run/sampler.h"

namespace loci {

// One pass, with the samplers of its requests.
struct PassJob {
  Pass pass;
  // Parallel to pass.spans; null if the host samples nothing for the span. Shared with the request, which may
  // end while its last pass runs.
  std::vector<std::shared_ptr<Sampler>> samplers;
  std::vector<RequestId> requests;  // parallel to pass.spans
  bool ahead = false;               // it was planned while the pass before it was in flight
};

// The result of a pass. `sampled` is parallel to the pass's spans.
struct PassEnd {
  PassDone event;
  std::vector<std::optional<Sampled>> sampled;
  Status health;  // Backend::health(), if a span failed
};

// Thread-compatible.
class PassExecutor {
 public:
  // All arguments must outlive it. `captures` may be null.
  PassExecutor(Backend& backend, ConstraintWorker& constraints, HiddenCaptures* captures)
      : backend_(backend), constraints_(constraints), captures_(captures) {}

  // At most 1 + BackendInfo::passes_ahead passes may be in flight.
  void begin(PassJob job);
  std::size_t in_flight() const { return begun_.size(); }
  // Waits for the end of the pass that began first; it is then no longer in flight. At least one must be.
  void wait();
  // Samples the tokens of that pass that the device left to the host. Other passes may have begun since.
  PassEnd end();

 private:
  struct Begun {
    OperationId id;
    std::vector<std::shared_ptr<Sampler>> samplers;
    std::vector<RequestId> requests;
    bool ahead = false;
  };
  void sample(PassEnd& end);

  Backend& backend_;
  ConstraintWorker& constraints_;
  HiddenCaptures* captures_;
  std::deque<Begun> begun_;
  Begun ended_;
  std::set<RequestId> poisoned_;  // in the pass that ended last
  std::vector<SpanResult> results_;
  Projected projected_;  // of the pass that ended last
};

}  // namespace loci
