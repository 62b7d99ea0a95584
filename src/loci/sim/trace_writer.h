// SPDX-License-Identifier: Apache-2.0
// Writes a trace in Loci's format (docs/traces.md). A reader learns lengths, times and which prompts begin
// alike, and nothing else: the contents of prompts are named by keyed hashes (SipHash-2-4).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "loci/base/status.h"
#include "loci/sim/trace.h"

namespace loci::sim {

using TraceKey = std::array<std::uint8_t, 16>;

// The lines of the file. If a turn has both a time of its own and a time to think, only the latter is
// written.
std::string trace_text(const Trace& trace, const TraceKey& key);
// The same in a file, under a key that nobody keeps. Errors: kUnavailable naming the path and the reason.
Status write_trace(const Trace& trace, const std::string& path);

}  // namespace loci::sim
