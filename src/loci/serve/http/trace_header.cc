// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/trace_header.h"

#include <algorithm>
#include <optional>
#include <string>

#include "loci/base/ascii.h"

namespace loci {
namespace {

auto is_named(std::string_view name) {
  return [name](const auto& header) { return lower_ascii(header.first) == name; };
}

}  // namespace

std::string_view traceparent_in(const HttpRequest& request) {
  if (std::ranges::count_if(request.headers, is_named("traceparent")) != 1) return {};
  return request.header("traceparent");
}

void put_traceparent(HttpRequest& request, const TraceContext& context) {
  const std::optional<TraceContext> before = parse_traceparent(traceparent_in(request));
  if (!before || before->trace != context.trace) std::erase_if(request.headers, is_named("tracestate"));
  std::erase_if(request.headers, is_named("traceparent"));
  request.headers.emplace_back("traceparent", traceparent_of(context));
}

}  // namespace loci
