// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/handed_prompt.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "loci/cluster/member.h"
#include "loci/cluster/resumed_request.h"

namespace loci {
namespace {

constexpr std::string_view kPrefillPurpose = "prefill";

std::string sealed_place_text(const HttpRequest& request, std::string_view values, std::string_view reply) {
  return fmt::format("{} {}\n{}\n{}", request.method_text, request.target, values, reply);
}

template <class Number>
bool is_count(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string prefill_header(const PrefillKey& key, const HttpRequest& request, const PrefillPlace& place,
                           std::string_view reply) {
  const std::string values =
      fmt::format("{} {} {} {}", place.host, place.port, place.begin_limit / kNanosPerMilli,
                  place.silence_limit / kNanosPerMilli);
  return fmt::format("{}: {} {}\r\n", kPrefillHeader, values,
                     seal(key, kPrefillPurpose, sealed_place_text(request, values, reply)));
}

std::optional<PrefillPlace> read_prefill_header(const PrefillKey& key, const HttpRequest& request) {
  const std::string_view header = request.header(kPrefillHeader);
  const std::size_t end = header.rfind(' ');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view values = header.substr(0, end);
  if (!is_sealed(key, kPrefillPurpose, sealed_place_text(request, values, request.header(kReplyHeader)),
                 header.substr(end + 1)))
    return std::nullopt;
  const std::size_t host = values.find(' ');
  const std::size_t port = host == std::string_view::npos ? host : values.find(' ', host + 1);
  const std::size_t limit = port == std::string_view::npos ? port : values.find(' ', port + 1);
  if (limit == std::string_view::npos) return std::nullopt;
  PrefillPlace out{.host = std::string(values.substr(0, host))};
  Nanos limit_ms = 0, silence_ms = 0;
  if (!is_count(values.substr(host + 1, port - host - 1), out.port) ||
      !is_count(values.substr(port + 1, limit - port - 1), limit_ms) || limit_ms < 0 ||
      limit_ms > kPrefillLimitMax / kNanosPerMilli || !is_count(values.substr(limit + 1), silence_ms) ||
      silence_ms < kPrefillSilenceMin / kNanosPerMilli || silence_ms > kPrefillSilenceMax / kNanosPerMilli)
    return std::nullopt;
  out.begin_limit = limit_ms * kNanosPerMilli;
  out.silence_limit = silence_ms * kNanosPerMilli;
  return out;
}

}  // namespace loci
