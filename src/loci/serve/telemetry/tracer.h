// SPDX-License-Identifier: Apache-2.0
// Decides which requests are traced, and makes their spans.
//
//   const TracedRequest traced = tracer.begin(traceparent_in(request), now);
//   ... who works for the request is told traced.context, so that its spans are below this one
//   if (traced.context.is_sampled)
//     tracer.end(Tracer::span_of(traced, SpanKind::kServer, "POST /v1/chat/completions", later));
//
// Thread-compatible: the network thread's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/serve/telemetry/trace_context.h"
#include "loci/serve/telemetry/trace_exporter.h"
#include "loci/serve/telemetry/trace_span.h"

namespace loci {

struct TracerOptions {
  double share = 1;             // of the traces that begin here, those that are sampled; 0 to 1
  std::string scheme = "http";  // by which clients reach the server
  std::uint64_t seed = 0;       // of the ids; no two processes have the same one
};

// A span that has begun.
struct TracedRequest {
  TraceContext context;          // its own
  std::optional<SpanId> parent;  // of whoever asked for it
  Nanos begin = 0;
};

class Tracer {
 public:
  // The exporter must outlive it.
  Tracer(TraceExporter& exporter, TracerOptions options)
      : exporter_(exporter), options_(std::move(options)), ids_(options_.seed) {}

  // Of a request with this header `traceparent`; empty: it has none. A valid one is obeyed: the request
  // belongs to that trace, and is sampled as it says.
  TracedRequest begin(std::string_view traceparent, Nanos at);
  // Of what is done for a span.
  TracedRequest begin_child(const TraceContext& parent, Nanos at);
  static TraceSpan span_of(const TracedRequest& traced, SpanKind kind, std::string name, Nanos end);
  // Takes a span whose trace is sampled. Never waits.
  void end(TraceSpan span) { exporter_.add(std::move(span)); }

  const std::string& scheme() const { return options_.scheme; }
  TraceCounts counts() const { return exporter_.counts(); }

 private:
  TraceExporter& exporter_;
  const TracerOptions options_;
  TraceIds ids_;
};

}  // namespace loci
