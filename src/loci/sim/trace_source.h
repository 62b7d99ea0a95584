// SPDX-License-Identifier: Apache-2.0
// A file of requests in any format that is known, as a trace. `loci sim` and `loci bench` read the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/base/status.h"
#include "loci/sim/trace.h"

namespace loci::sim {

struct TraceSource {
  std::string file;
  std::string format = "loci";
  std::uint64_t requests = 0;  // the first so many; 0: all
  double time_scale = 1;       // multiplies the trace's times
  std::uint64_t seed = 1;      // for what a format does not say, and the reader draws
  double rate = 0.1;           // of weka: sessions that begin in a second
  double from_s = 0;           // of servegen: the time of the data at which the trace begins
  std::string model;           // of servegen: whose clients; empty: all
};

// "loci" first.
const std::vector<std::string_view>& trace_formats();
// Which fields of a source say something in one format alone.
inline constexpr std::pair<const char*, std::string_view> kTraceFieldsOfFormats[] = {
    {"rate", "weka"}, {"from_s", "servegen"}, {"model", "servegen"}};

// Parses text in a format that is no binary one, so not `log`. Only `requests`, `seed`, `rate`, `from_s` and
// `model` count, and `requests` only where requests are drawn. Errors: kInvalidArgument naming file, line and
// field.
Result<Trace> parse_source(const TraceSource& source, const std::string& text);

// Reads the file, plain or gzip. Errors: kNotFound; kDataLoss (truncated gzip); kInvalidArgument naming file,
// line and field, what was expected and found.
Result<Trace> read_source(const TraceSource& source);

}  // namespace loci::sim
