// SPDX-License-Identifier: Apache-2.0
// The passes of a server's event log beside what a machine's model says that they take: how true a simulation
// of that server can be, and what it takes for a pass beside its backend.
#pragma once

#include <cstdint>
#include <string>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/sim/hardware.h"

namespace loci::sim {

struct LogPasses {
  struct Kind {
    std::uint64_t passes = 0;
    Nanos took = 0, modelled = 0;  // sums over these passes
  };
  Kind decodes;  // passes without a prompt's tokens
  Kind prompts;
  // What passes projected of hidden states, alone.
  Kind projecting;
  // What a pass of decodes took beyond the model, the median; below 0 where it took less.
  Nanos beside_model = 0;
};

// Passes that may have waited for loads are left out; of passes that projected hidden states only the
// projecting is compared. A pass ends with the event that tells of its end, so all that the server did until
// then counts. Replays the log: O(its events). Thread-safe. Errors: those of replay(), naming the file.
Result<LogPasses> passes_of_log(const std::string& path, const PassModel& model);

}  // namespace loci::sim
