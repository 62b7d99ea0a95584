// SPDX-License-Identifier: Apache-2.0
// Makes a trace of the requests in a server's event log (docs/event-log.md): when they came, how long their
// prompts and replies were, which prompts began alike, and which request continued which. The log is replayed
// for this, because only the core knows to which request a sample belongs.
#pragma once

#include <string>

#include "loci/base/status.h"
#include "loci/sim/trace.h"

namespace loci::sim {

// Refused requests and public prefixes are left out; the trace's notes say how many. A request continues an
// earlier one that had ended if its prompt begins with all tokens of the earlier one; the time between them
// is kept. Errors: those of replay(), naming the file; kInvalidArgument if the log has no request.
Result<Trace> trace_of_log(const std::string& path);

}  // namespace loci::sim
