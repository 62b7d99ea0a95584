// SPDX-License-Identifier: Apache-2.0
// Writes a trace in Loci's format (docs/traces.md). Whoever reads it learns lengths, times and which prompts
// begin alike, and nothing else: what a prompt is made of is named by keyed hashes (SipHash-2-4).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "loci/base/status.h"
#include "loci/sim/trace.h"

namespace loci::sim {

using TraceKey = std::array<std::uint8_t, 16>;

// The lines. A turn that has both a time of its own and a time to think keeps the latter alone.
std::string trace_text(const Trace& trace, const TraceKey& key);
// The same in a file, under a key that nobody keeps. Errors: kUnavailable naming the path and the reason.
Status write_trace(const Trace& trace, const std::string& path);

}  // namespace loci::sim
