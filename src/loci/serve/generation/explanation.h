// SPDX-License-Identifier: Apache-2.0
// Where the state of a reply's prompts came from, what of it had to be computed and why, and how long that
// took: what `"loci": {"explain": true}` asks for, and what the access log tells. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "loci/base/clock.h"
#include "loci/engine/core/plan.h"
#include "loci/serve/wire/json.h"

namespace loci {

struct ReplyExplanation {
  bool wanted = false;     // the client asked for it
  ContextSources sources;  // of all prompts together, each counted once
  // Of the first choice. queued: from submission to admission; first_token: from there to its first token,
  // which is what predicted_load and predicted_compute are about.
  std::optional<Nanos> queued;
  std::optional<Nanos> first_token;
};

// All that were computed, whatever the reason.
std::uint64_t computed_tokens(const ContextSources& sources);
void add(ContextSources& sum, const ContextSources& sources);

// {"tokens": {"device", "host", "disk", "shared", "computed"}, "computed_because": {"never_seen", ...},
//  "predicted_ms": {"load", "compute"}, "restore": {"plan", "planned_ms", "loading_all_ms",
//  "computing_all_ms"}, "real_ms": {"queued", "first_token"}}
Json explanation_json(const ReplyExplanation& explanation);
// Adds it to a reply as "loci", where the client asked for it.
void add_explanation(Json& reply, const ReplyExplanation& explanation);

}  // namespace loci
