// SPDX-License-Identifier: Apache-2.0
// Readers of traces in which a line is a request: Loci's own format and those of other projects
// (docs/traces.md). Of sessions and of rates there are readers of their own (weka.h, servegen.h); all formats
// by their names are read by trace_source.h.
//
// Each takes text with the name of its file, for messages.
// Errors: kInvalidArgument "FILE:LINE: FIELD: expected ..., found ...".
#pragma once

#include <string>

#include "loci/base/status.h"
#include "loci/sim/trace.h"

namespace loci::sim {

// Loci's format.
Result<Trace> parse_trace(const std::string& text, const std::string& name);

// mooncake's: timestamp in ms, input_length, output_length, hash_ids of blocks of 512 tokens. Its service
// wrote down times in steps, so many requests have the same one: they are spread evenly over their step.
Result<Trace> parse_mooncake(const std::string& text, const std::string& name);

// Azure's tables: TIMESTAMP, ContextTokens, GeneratedTokens. Times count from the first row.
Result<Trace> parse_azure(const std::string& text, const std::string& name);

// arena-clients' table: req_time in seconds, client, prompt_len, output_len.
Result<Trace> parse_arena(const std::string& text, const std::string& name);

}  // namespace loci::sim
