// SPDX-License-Identifier: Apache-2.0
// The header `traceparent` of a request (serve/telemetry/trace_context.h).
#pragma once

#include <string_view>

#include "loci/serve/http/http_message.h"
#include "loci/serve/telemetry/trace_context.h"

namespace loci {

// Empty: the request has none, or several, of which none counts. A view of the request.
std::string_view traceparent_in(const HttpRequest& request);
// Sets the request's header to this span, so that whoever gets the request next makes spans below it. The
// header `tracestate` belongs to the client's trace: it is removed if this span is of another one.
void put_traceparent(HttpRequest& request, const TraceContext& context);

}  // namespace loci
