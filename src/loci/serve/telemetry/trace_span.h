// SPDX-License-Identifier: Apache-2.0
// A span: what was done for a request, from when to when. And spans as OTLP sends them: the JSON form of
// ExportTraceServiceRequest (opentelemetry-proto 1.x; ids are hexadecimal there, and integers of 64 bits
// strings).
//
// Values: thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "loci/base/clock.h"
#include "loci/serve/telemetry/trace_context.h"

namespace loci {

// The numbers are those of OTLP.
enum class SpanKind : std::uint8_t {
  kInternal = 1,
  kServer = 2,  // of a request that somebody else sent
  kClient = 3,  // of one that is sent on
};

using SpanValue = std::variant<std::string, std::int64_t, std::vector<std::string>>;

struct TraceSpan {
  TraceId trace;
  SpanId id;
  std::optional<SpanId> parent;  // absent: the trace begins here
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  Nanos begin = 0;  // of the process's clock; since 1970 once an exporter has it
  Nanos end = 0;    // not before `begin`
  std::vector<std::pair<std::string, SpanValue>> attributes = {};
  bool has_failed = false;

  TraceSpan& text(std::string_view key, std::string_view value);
  TraceSpan& count(std::string_view key, std::uint64_t value);
};

// At most this many bytes of a text that a client chose.
inline constexpr std::size_t kSpanTextMax = 200;

// Who sends the spans: attributes of all of them.
struct SpanResource {
  std::string service;  // "loci"
  std::string version;
  std::string instance;  // a name that no other process has
  std::string host;      // the machine's name
  // Further ones by their keys, each once; one of service.version, service.instance.id or host.name takes the
  // place of that above.
  std::vector<std::pair<std::string, std::string>> others = {};
};

// The spans' times are nanoseconds since 1970.
std::string spans_json(std::span<const TraceSpan> spans, const SpanResource& resource);

// How many spans of a request that it answered with 200 a collector says that it did not take
// (ExportTracePartialSuccess). 0 if it says nothing, or something else.
std::uint64_t rejected_spans(std::string_view answer);

}  // namespace loci
