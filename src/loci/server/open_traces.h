// SPDX-License-Identifier: Apache-2.0
// Where the spans of traces go: a collector that takes OTLP by HTTP (option traces).
#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <string>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/serve/http/server_address.h"
#include "loci/serve/telemetry/trace_exporter.h"
#include "loci/serve/telemetry/tracer.h"
#include "loci/server/traces_options.h"

namespace loci {

// At a stop, so long spans are still sent.
inline constexpr Nanos kTracesPatience = 2 * kNanosPerSecond;

struct TraceCollector {
  ServerAddress address;
  std::string path;  // with a query, if it has one
};

// "http://127.0.0.1:4318" or "https://collector.example/otlp/v1/traces": without a path spans are POSTed to
// /v1/traces, and without a port to 80 or 443. ("http://HOST/?" is the path "/" all the same.) The
// certificate of https must lead to an authority that the system trusts. Errors, whose field is `traces`:
// kInvalidArgument, which does not show a user and password; those of make_client_tls().
Result<TraceCollector> parse_traces_url(std::string_view url);

// Both, in the order in which they are made.
struct Traces {
  std::unique_ptr<TraceExporter> exporter;
  std::unique_ptr<Tracer> tracer;
};
// Both null where nothing is traced. `clock` is that of the spans. The file of headers is read for each
// batch, so a new key counts from the next one on; while it is wrong nothing is sent, and the log says why.
// Errors as parse_traces_url() and read_trace_headers().
Result<Traces> open_traces(const TracesOptions& options, const Clock& clock,
                           std::shared_ptr<spdlog::logger> log);

}  // namespace loci
