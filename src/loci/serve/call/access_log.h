// SPDX-License-Identifier: Apache-2.0
// The access log: one line for each request, with what a generation cost.
#pragma once

#include <string_view>

#include "loci/base/clock.h"
#include "loci/serve/call/router.h"
#include "loci/serve/generation/generation_summary.h"
#include "loci/serve/telemetry/log_line.h"

namespace loci {

// Of a request that was answered, `duration` after its last byte had come.
LogLine access_line(const Call& call, Nanos duration);
// Of a generation for which no request waits.
LogLine background_line(std::string_view request_id, std::string_view path, std::string_view tenant,
                        const GenerationSummary& summary);

}  // namespace loci
