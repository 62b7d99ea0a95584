// SPDX-License-Identifier: Apache-2.0
// What /metrics tells of the core's decisions: where prompts' state came from, why the rest was computed, how
// moves between tiers ended, what was saved and what was dropped. Pure; thread-safe.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "loci/engine/core/core.h"

namespace loci {

// Every value of every label is listed from the start, so that no series begins in the middle.
std::vector<prometheus::MetricFamily> core_metrics(const CoreStats& stats);

}  // namespace loci
