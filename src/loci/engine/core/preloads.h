// SPDX-License-Identifier: Apache-2.0
// Loads of who comes next, which begin before it is admitted: while a pass runs, or while it waits for the
// end of its sequence (beginnings.h), into device memory that nobody needs now (the read buffer of
// AttentionStore §3.2.1).
//
// An example: a runs, b and c wait. K: on the device; d: on the disk alone.
//
//     block          0   1   2
//     of b           K   d   d     begin(): loads of 1 and 2 begin, as far as there is room beside what a was
//     of c           d   d   .     promised; then that of c's first, if they fit too
//     a ends         b is admitted, and joins a pass when its loads are predicted to arrive in time
//
// Every request is looked up once. It is looked up again when there is more room, or when something has come
// (Room), if it lacked something: of the first PolicySet::preload_retries in one call.
//
// It owns when a request was looked up, whether it lacked something, and what was loaded for it
// (RequestPreload). It requires that the requests which it is given wait.
// It calls the transfers, the device's memory, Restores, Admission, the batch, the queue, who waits before
// it, the queue's needs and the former of passes. Invariants, which check_invariants() tests (core.h has
// all):
//   7. Nobody lacks something, or was loaded for, who was never looked up; and nobody is where loads ahead
//      are off.
//   10. What was loaded for a request are whole blocks of its own.
#pragma once

#include <cstdint>
#include <functional>

#include "loci/base/ids.h"
#include "loci/engine/core/admission.h"
#include "loci/engine/core/batch.h"
#include "loci/engine/core/before_queue.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/device_memory.h"
#include "loci/engine/core/pass_former.h"
#include "loci/engine/core/queue_needs.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/restores.h"
#include "loci/engine/core/transfers.h"
#include "loci/policy/admission.h"

namespace loci {

// Thread-compatible; used by whoever steps the core.
class Preloads {
 public:
  // All ten must outlive it.
  Preloads(const CoreConfig& config, Transfers& transfers, const DeviceMemory& device_memory,
           const Restores& restores, Admission& admission, const Batch& batch, FairQueue& queue,
           const BeforeQueue& before_queue, QueueNeeds& queue_needs, const PassFormer& former);

  // A request that waits.
  using Find = std::function<CoreRequest&(RequestId)>;
  // A pass is in flight. Begins loads of those who come next; `room_changes`: Room::changes(). Costs
  // O(blocks · log(children)) of each request that is looked up. `pass_waits`: this step has formed the pass,
  // which begins when the step ends; so they are left to the next step, but not twice in a row.
  void begin(const Find& find, std::uint64_t room_changes, bool pass_waits);
  // No pass is in flight, or nobody comes next any more.
  void rest() { has_more_ = false; }
  // True: the last begin() left loads to the next one, which should come soon.
  bool has_more() const { return has_more_; }

  // The request waits before the queue for its first load, the end of its sequence. The link goes on with the
  // rest behind that: of a few requests, the first of each tenant, unless somebody in the queue waits for the
  // memory, or the request has so many blocks that looking at them would hold up others.
  void begin_behind_first(CoreRequest& request, std::uint64_t room_changes);

  // Of any request. Aborts on a broken invariant. O(1).
  void check_invariants(const CoreRequest& request) const;

 private:
  bool begin_loads_of(CoreRequest& request, std::uint64_t booked);

  Transfers& transfers_;
  const DeviceMemory& device_memory_;
  const Restores& restores_;
  Admission& admission_;
  const Batch& batch_;
  FairQueue& queue_;
  const BeforeQueue& before_queue_;
  QueueNeeds& queue_needs_;
  const PassFormer& former_;
  bool off_, bounded_;
  std::uint32_t retries_;
  bool has_more_ = false;
  bool put_off_ = false;  // for the pass that the last step formed
};

}  // namespace loci
