// SPDX-License-Identifier: Apache-2.0
// What is configured of traces, as plain values (open_traces.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace loci {

// Names and values.
using TraceHeaders = std::vector<std::pair<std::string, std::string>>;

struct TracesOptions {
  std::string url;            // of a collector (parse_traces_url()); empty: nothing is traced
  double share = 1;           // TracerOptions::share
  std::string headers_file;   // with headers of requests to the collector (trace_headers.h); empty: none
  TraceHeaders headers = {};  // the same, where there is no file
  std::string service = "loci";
  // Of the resource, beside service.name; one of those that a server says of itself goes before its own.
  std::vector<std::pair<std::string, std::string>> attributes = {};
  std::string scheme = "http";  // by which clients reach the server
};

}  // namespace loci
