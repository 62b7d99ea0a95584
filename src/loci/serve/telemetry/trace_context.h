// SPDX-License-Identifier: Apache-2.0
// Which trace a request belongs to, as the header `traceparent` says it (W3C Trace Context, a recommendation
// of 2021, version 00), and who may begin one.
//
//   traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//                version, trace, span of who asks, flags: the last bit says that the trace is sampled
//
// Values: thread-compatible. No function waits.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>

namespace loci {

// No id is zero.
struct TraceId {
  std::array<std::uint8_t, 16> bytes{};
  bool operator==(const TraceId&) const = default;
};
struct SpanId {
  std::array<std::uint8_t, 8> bytes{};
  bool operator==(const SpanId&) const = default;
};
std::string to_hex(const TraceId& id);
std::string to_hex(const SpanId& id);

// A span, as whoever works for it is told.
struct TraceContext {
  TraceId trace;
  SpanId span;
  bool is_sampled = false;  // its spans are collected
  bool operator==(const TraceContext&) const = default;
};

// Absent: the value is not valid, and counts as no header at all. Of a version that is not known yet the
// fields of version 00 are read, as the recommendation says (4.3).
std::optional<TraceContext> parse_traceparent(std::string_view value);
// Of version 00. Of the flags only `sampled` is passed on: the others have no meaning in that version.
std::string traceparent_of(const TraceContext& context);

// Of the traces that begin here, the share that is sampled: it depends on the trace's id alone, so that
// servers with the same share choose the same traces. `share`: 0 to 1.
bool is_chosen(const TraceId& trace, double share);

// Draws ids. Thread-compatible.
class TraceIds {
 public:
  explicit TraceIds(std::uint64_t seed) : generator_(seed) {}
  TraceId new_trace();
  SpanId new_span();

 private:
  std::mt19937_64 generator_;
};

}  // namespace loci
