// SPDX-License-Identifier: Apache-2.0
// The header `traceparent` of a request (serve/telemetry/trace_context.h).
#pragma once

#include <string_view>

#include "loci/serve/http/http_message.h"
#include "loci/serve/telemetry/trace_context.h"

namespace loci {

// Empty: the request has none, or several, of which none counts. A view of the request.
std::string_view traceparent_in(const HttpRequest& request);
// In place of what the request has: who reads it next works for this span. `tracestate`, which belongs to the
// trace, stays only where the trace is the one that the request has named.
void put_traceparent(HttpRequest& request, const TraceContext& context);

}  // namespace loci
