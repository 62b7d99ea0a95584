// SPDX-License-Identifier: Apache-2.0
// Random runs on modelled hardware that fails: slow and failing links and disks, bursts of requests, clients
// that leave, processes that end; and instances behind fronts that die and come back, with their disks or
// without. A broken invariant ends the program.
#pragma once

#include <cstdint>

#include "loci/base/random.h"
#include "loci/sim/trace.h"
#include "loci/sim/world.h"

namespace loci::sim {

enum class WorldSize : std::uint8_t {
  kSmall,  // a few conversations; the core's invariants and the ledger are tested after each step
  kLarge,  // some hundreds; the ledger alone is tested, when processes end
};

struct FaultWorld {
  Trace trace;
  WorldOptions options;
};

// The same generator gives the same world.
FaultWorld random_fault_world(Random& random, WorldSize size);
// Two to five such instances behind one to three fronts; at random times each dies.
FaultWorld random_cluster_world(Random& random, WorldSize size);
// One whose disk has blocks as hidden states, which are projected when they are read.
FaultWorld random_hidden_world(Random& random, WorldSize size);
// Runs the world, and tests that all requests of the trace are accounted for.
WorldReport run_fault_world(const FaultWorld& world);

}  // namespace loci::sim
