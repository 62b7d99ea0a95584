// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/asides.h"

#include <variant>

#include "loci/base/check.h"

namespace loci::sim {

void Asides::add(RequestId id, std::uint32_t prompt_tokens, std::shared_ptr<EarlyReadPace> pace) {
  const bool is_new =
      live_.emplace(id.value, Live{.prompt_tokens = prompt_tokens, .pace = std::move(pace)}).second;
  LOCI_CHECK(is_new, "a request has one aside of a kind at a time");
}

void Asides::see(const Output& output, Ledger& ledger) {
  const RequestId id = std::visit([](const auto& one) { return one.request; }, output);
  const auto at = live_.find(id.value);
  LOCI_CHECK(at != live_.end(), "an aside ends once");
  Live& live = at->second;
  if (const auto* started = std::get_if<Started>(&output)) {
    live.to_compute = live.prompt_tokens - started->cached_tokens;
    if (live.pace != nullptr)
      live.pace->started(started->sources);
    else
      news_.push_back({.id = id, .end = {}});
    return;
  }
  if (const auto* restored = std::get_if<Restored>(&output)) {
    const std::uint32_t cached = restored->sources.cached();
    ledger.restored(live.prompt_tokens, cached);
    live.to_compute = live.prompt_tokens - cached;
    if (live.pace != nullptr) live.pace->restored(restored->sources);
    return;
  }
  if (std::holds_alternative<TokenSampled>(output)) return ledger.sampled();
  StatusCode code = StatusCode::kOk;
  PrefillEnd end = PrefillEnd::kRefused;
  if (const auto* finished = std::get_if<Finished>(&output)) {
    ledger.ended();
    const bool is_done = finished->reason == FinishReason::kLength;
    end = is_done ? PrefillEnd::kDone : PrefillEnd::kLost;
    if (!is_done && finished->reason != FinishReason::kCancelled) code = StatusCode::kInternal;
  } else if (const auto* rejected = std::get_if<Rejected>(&output)) {
    ledger.rejected(*rejected);
    code = rejected->status.code();
  } else {
    return;
  }
  if (live.pace != nullptr)
    live.pace->ended(code);
  else
    news_.push_back({.id = id, .end = end, .tokens = live.to_compute});
  live_.erase(at);
}

void Asides::computed(RequestId id, std::uint32_t tokens) {
  const auto at = live_.find(id.value);
  if (at == live_.end() || at->second.pace != nullptr) return;
  news_.push_back({.id = id, .end = {}, .tokens = tokens});
}

void Asides::clear() {
  live_.clear();
  news_.clear();
}

}  // namespace loci::sim
