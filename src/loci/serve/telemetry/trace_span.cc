// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/telemetry/trace_span.h"

#include <algorithm>
#include <charconv>

#include "loci/base/json_reader.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

Json value_json(const SpanValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return {{"stringValue", *text}};
  if (const auto* count = std::get_if<std::int64_t>(&value)) return {{"intValue", std::to_string(*count)}};
  Json texts = Json::array();
  for (const std::string& text : std::get<std::vector<std::string>>(value))
    texts.push_back({{"stringValue", text}});
  return {{"arrayValue", {{"values", std::move(texts)}}}};
}

Json attribute(std::string_view key, const SpanValue& value) {
  return {{"key", key}, {"value", value_json(value)}};
}

Json resource_json(const SpanResource& resource) {
  Json out = Json::array({attribute("service.name", resource.service)});
  const auto add = [&](std::string_view key, const std::string& value) {
    const auto is_same = [key](const auto& other) { return other.first == key; };
    if (std::ranges::none_of(resource.others, is_same)) out.push_back(attribute(key, value));
  };
  add("service.version", resource.version);
  add("service.instance.id", resource.instance);
  add("host.name", resource.host);
  for (const auto& [key, value] : resource.others) out.push_back(attribute(key, value));
  return out;
}

Json span_json(const TraceSpan& span) {
  Json out = {{"traceId", to_hex(span.trace)}, {"spanId", to_hex(span.id)}};
  if (span.parent) out["parentSpanId"] = to_hex(*span.parent);
  out["name"] = span.name;
  out["kind"] = static_cast<int>(span.kind);
  out["startTimeUnixNano"] = std::to_string(span.begin);
  out["endTimeUnixNano"] = std::to_string(std::max(span.begin, span.end));
  Json attributes = Json::array();
  for (const auto& [key, value] : span.attributes) attributes.push_back(attribute(key, value));
  out["attributes"] = std::move(attributes);
  if (span.has_failed) out["status"] = {{"code", 2}};
  return out;
}

}  // namespace

TraceSpan& TraceSpan::text(std::string_view key, std::string_view value) {
  attributes.emplace_back(std::string(key), std::string(utf8_prefix(value, kSpanTextMax)));
  return *this;
}

TraceSpan& TraceSpan::count(std::string_view key, std::uint64_t value) {
  attributes.emplace_back(std::string(key), static_cast<std::int64_t>(value));
  return *this;
}

std::string spans_json(std::span<const TraceSpan> spans, const SpanResource& resource) {
  Json list = Json::array();
  for (const TraceSpan& span : spans) list.push_back(span_json(span));
  Json about = resource_json(resource);
  const Json scope = {{"name", "loci"}, {"version", resource.version}};
  Json of_scope = {{"scope", scope}, {"spans", std::move(list)}};
  Json of_resource = {{"resource", {{"attributes", std::move(about)}}},
                      {"scopeSpans", Json::array({std::move(of_scope)})}};
  return dump_json({{"resourceSpans", Json::array({std::move(of_resource)})}});
}

std::uint64_t rejected_spans(std::string_view answer) {
  const Json json = read_json<Json>(answer, {}).value;
  if (!json.is_object() || !json.contains("partialSuccess")) return 0;
  const Json& partial = json["partialSuccess"];
  if (!partial.is_object() || !partial.contains("rejectedSpans")) return 0;
  const Json& rejected = partial["rejectedSpans"];
  if (rejected.is_number_unsigned()) return rejected.get<std::uint64_t>();
  if (!rejected.is_string()) return 0;
  const std::string text = rejected.get<std::string>();
  std::uint64_t count = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), count);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() ? count : 0;
}

}  // namespace loci
