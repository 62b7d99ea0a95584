// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/telemetry/tracer.h"

#include <utility>

namespace loci {

TracedRequest Tracer::begin(std::string_view traceparent, Nanos at) {
  if (const std::optional<TraceContext> asked = parse_traceparent(traceparent))
    return begin_child(*asked, at);
  TracedRequest out{
      .context = {.trace = ids_.new_trace(), .span = ids_.new_span()}, .parent = {}, .begin = at};
  out.context.is_sampled = is_chosen(out.context.trace, options_.share);
  return out;
}

TracedRequest Tracer::begin_child(const TraceContext& parent, Nanos at) {
  TracedRequest out{.context = parent, .parent = parent.span, .begin = at};
  out.context.span = ids_.new_span();
  return out;
}

TraceSpan Tracer::span_of(const TracedRequest& traced, SpanKind kind, std::string name, Nanos end) {
  return {.trace = traced.context.trace,
          .id = traced.context.span,
          .parent = traced.parent,
          .name = std::move(name),
          .kind = kind,
          .begin = traced.begin,
          .end = end};
}

}  // namespace loci
