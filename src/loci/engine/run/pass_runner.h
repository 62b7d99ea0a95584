// SPDX-License-Identifier: Apache-2.0
// The compute thread's half of a pass: begins passes on the backend, ends them in order, and samples on the
// host what the device does not.
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

// What is needed of one pass.
struct PassJob {
  Pass pass;
  // Parallel to pass.spans; absent where nothing is sampled on the host. Shared with the request, which may
  // end while its last pass runs.
  std::vector<std::shared_ptr<Sampler>> samplers;
  std::vector<RequestId> requests;  // parallel to pass.spans
  bool behind = false;              // it was planned while the pass before it was in flight
};

// The answer: `sampled` is parallel to the pass's spans.
struct PassEnd {
  PassDone event;
  std::vector<std::optional<Sampled>> sampled;
  Status health;  // Backend::health(), where a span failed
};

// Thread-compatible.
class PassRunner {
 public:
  // All must outlive it. `captures` may be null; else the backend has no passes ahead.
  PassRunner(Backend& backend, ConstraintWorker& constraints, HiddenCaptures* captures)
      : backend_(backend), constraints_(constraints), captures_(captures) {}

  // At most 1 + BackendInfo::passes_ahead are in flight.
  void begin(PassJob job);
  std::size_t in_flight() const { return begun_.size(); }
  // Waits for the one that began first, which is in flight no more. At least one is.
  void wait();
  // Samples what that one leaves to the host. Others may have begun since.
  PassEnd end();

 private:
  struct Begun {
    OperationId id;
    std::vector<std::shared_ptr<Sampler>> samplers;
    std::vector<RequestId> requests;
    bool behind = false;
  };
  void sample(PassEnd& end);

  Backend& backend_;
  ConstraintWorker& constraints_;
  HiddenCaptures* captures_;
  std::deque<Begun> begun_;
  Begun ended_;
  std::set<RequestId> poisoned_;  // in the pass that ended last
  std::vector<SpanResult> results_;
};

}  // namespace loci
