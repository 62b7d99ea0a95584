// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/explanation.h"

#include <algorithm>
#include <string>

#include "loci/serve/wire/json.h"

namespace loci {

namespace {

// Microseconds are as fine as they get.
double ms(Nanos nanos) { return static_cast<double>(nanos / 1000) / 1000; }
Json ms_or_null(const std::optional<Nanos>& nanos) { return nanos ? Json(ms(*nanos)) : Json(); }

}  // namespace

std::uint64_t computed_tokens(const ContextSources& sources) {
  std::uint64_t sum = 0;
  for (const std::uint32_t tokens : sources.computed) sum += tokens;
  return sum;
}

void add(ContextSources& sum, const ContextSources& sources) {
  sum.device += sources.device;
  sum.host += sources.host;
  sum.disk += sources.disk;
  sum.shared += sources.shared;
  sum.hidden += sources.hidden;
  for (std::size_t i = 0; i < kMissReasons; ++i) sum.computed[i] += sources.computed[i];
  // Prompts of one request load at the same time and are computed one after another.
  sum.predicted_load = std::max(sum.predicted_load, sources.predicted_load);
  sum.predicted_compute += sources.predicted_compute;
  sum.restore.rule = sources.restore.rule;
  sum.restore.planned = std::max(sum.restore.planned, sources.restore.planned);
  sum.restore.loading_all = std::max(sum.restore.loading_all, sources.restore.loading_all);
  sum.restore.computing_all = std::max(sum.restore.computing_all, sources.restore.computing_all);
}

Json explanation_json(const ReplyExplanation& explanation) {
  const ContextSources& from = explanation.sources;
  Json reasons = Json::object();
  for (std::size_t i = 0; i < kMissReasons; ++i)
    reasons[std::string(miss_reason_name(static_cast<MissReason>(i)))] = from.computed[i];
  return {
      {"tokens",
       {{"device", from.device},
        {"host", from.host},
        {"disk", from.disk},
        {"shared", from.shared},
        {"computed", computed_tokens(from)}}},
      {"disk_forms", {{"kv", from.disk - from.hidden}, {"hidden", from.hidden}}},
      {"computed_because", std::move(reasons)},
      {"predicted_ms", {{"load", ms(from.predicted_load)}, {"compute", ms(from.predicted_compute)}}},
      {"restore",
       {{"plan", restore_rule_name(from.restore.rule)},
        {"planned_ms", ms(from.restore.planned)},
        {"loading_all_ms", ms(from.restore.loading_all)},
        {"computing_all_ms", ms(from.restore.computing_all)}}},
      {"real_ms",
       {{"queued", ms_or_null(explanation.queued)}, {"first_token", ms_or_null(explanation.first_token)}}}};
}

void add_explanation(Json& reply, const ReplyExplanation& explanation) {
  if (explanation.wanted) reply["loci"] = explanation_json(explanation);
}

}  // namespace loci
