// SPDX-License-Identifier: Apache-2.0
// What a server was asked, from its event log (docs/event-log.md), as a trace: when requests came, how long
// their prompts and replies were, which began alike, and which one went on from which. The log is replayed
// for that, since only the core knows whose a sample is.
#pragma once

#include <string>

#include "loci/base/status.h"
#include "loci/sim/trace.h"

namespace loci::sim {

// Requests that were refused are left out, as is what an operator made public; the trace's notes say how
// many. A request goes on from another one that had ended when its prompt begins with all of that one's: it
// comes as long after that one's end as it did. Errors: those of replay(), naming the file; kInvalidArgument
// where nobody asked anything.
Result<Trace> trace_of_log(const std::string& path);

}  // namespace loci::sim
