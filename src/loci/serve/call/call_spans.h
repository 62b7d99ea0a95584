// SPDX-License-Identifier: Apache-2.0
// The spans of a request, once it has been answered (docs/operations.md, Traces): numbers and names, and
// nobody's text. Network thread only.
#pragma once

#include "loci/base/clock.h"
#include "loci/serve/call/router.h"
#include "loci/serve/generation/generation_summary.h"
#include "loci/serve/generation/reply_sink.h"
#include "loci/serve/telemetry/tracer.h"

namespace loci {

// Of a call that was traced and ended at that time: its own, and below it those of its generation, `queue`,
// `prompt` and `reply`.
void end_spans(Tracer& tracer, const Call& call, const Route& route, Nanos end);
// Of a generation for which no request waits: its own, below that of the request that began it, and the
// three. `was_refused`: it ended with an error before it began.
void end_background_spans(Tracer& tracer, const ReplyOrigin& origin, const GenerationSummary& summary,
                          bool was_refused);

}  // namespace loci
