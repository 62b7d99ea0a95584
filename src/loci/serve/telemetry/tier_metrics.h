// SPDX-License-Identifier: Apache-2.0
// What /metrics tells of the tiers: their size, what moved between them, what the disk did.
#pragma once

#include <prometheus/metric_family.h>

#include <optional>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/mover/hidden_captures.h"
#include "loci/engine/mover/mover.h"
#include "loci/engine/run/block_listener.h"
#include "loci/memory/disk/disk_store.h"
#include "loci/memory/shared/shared_store.h"

namespace loci {

struct TierSnapshot {
  std::vector<CoreGroup> groups;  // with the slots of all tiers
  CoreHidden hidden;
  CoreStats core;
  MoverStats mover;
  CaptureStats captures;
  DiskStoreStats disk;
  SharedStoreStats shared;
  std::optional<FeedStats> feed;  // of a server that tells fronts
};

std::vector<prometheus::MetricFamily> tier_metrics(const TierSnapshot& snapshot);

}  // namespace loci
