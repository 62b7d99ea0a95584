// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/telemetry/trace_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "loci/base/hex.h"

namespace loci {
namespace {

constexpr std::size_t kLength = 55;  // of version 00: all of it; of later ones: what is read
constexpr std::size_t kTraceAt = 3, kSpanAt = 36, kFlagsAt = 53;
constexpr std::uint8_t kSampled = 1;

// Absent: no digit. Upper case is not allowed.
std::optional<std::uint8_t> digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<std::uint8_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<std::uint8_t>(c - 'a' + 10);
  return std::nullopt;
}

// True: `text` has two digits for each byte.
bool read_hex(std::string_view text, std::span<std::uint8_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (!high || !low) return false;
    out[i] = static_cast<std::uint8_t>(*high << 4 | *low);
  }
  return true;
}

bool is_zero(std::span<const std::uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; });
}

template <class Id>
Id draw(std::mt19937_64& generator) {
  Id id;
  while (is_zero(id.bytes)) {
    for (std::size_t at = 0; at < id.bytes.size(); at += 8) {
      const std::uint64_t word = generator();
      std::memcpy(id.bytes.data() + at, &word, sizeof(word));
    }
  }
  return id;
}

}  // namespace

std::string to_hex(const TraceId& id) { return to_hex(std::span<const std::uint8_t>(id.bytes)); }
std::string to_hex(const SpanId& id) { return to_hex(std::span<const std::uint8_t>(id.bytes)); }

std::optional<TraceContext> parse_traceparent(std::string_view value) {
  if (value.size() < kLength || value[2] != '-' || value[kSpanAt - 1] != '-' || value[kFlagsAt - 1] != '-')
    return std::nullopt;
  std::array<std::uint8_t, 1> version{}, flags{};
  TraceContext out;
  if (!read_hex(value, version) || !read_hex(value.substr(kTraceAt), out.trace.bytes) ||
      !read_hex(value.substr(kSpanAt), out.span.bytes) || !read_hex(value.substr(kFlagsAt), flags))
    return std::nullopt;
  if (version[0] == 0xff || is_zero(out.trace.bytes) || is_zero(out.span.bytes)) return std::nullopt;
  if (value.size() > kLength && (version[0] == 0 || value[kLength] != '-')) return std::nullopt;
  out.is_sampled = (flags[0] & kSampled) != 0;
  return out;
}

std::string traceparent_of(const TraceContext& context) {
  return fmt::format("00-{}-{}-{:02x}", to_hex(context.trace), to_hex(context.span),
                     context.is_sampled ? kSampled : 0);
}

bool is_chosen(const TraceId& trace, double share) {
  // The last seven bytes are what the specification of OpenTelemetry expects to be random.
  std::uint64_t number = 0;
  for (std::size_t i = 9; i < trace.bytes.size(); ++i) number = number << 8 | trace.bytes[i];
  return static_cast<double>(number) < std::ldexp(share, 56);
}

TraceId TraceIds::new_trace() { return draw<TraceId>(generator_); }
SpanId TraceIds::new_span() { return draw<SpanId>(generator_); }

}  // namespace loci
