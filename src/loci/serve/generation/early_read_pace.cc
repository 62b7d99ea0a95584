// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/early_read_pace.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "loci/compute/pass.h"

namespace loci {
namespace {

// A read costs a row of a pass, and whoever submits it the keys of all tokens before: so it brings so many
// tokens at least, and an eighth of those that are there.
constexpr std::uint32_t kEarlyTokens = 256;

std::uint32_t sum_of(const std::array<std::uint32_t, kMissReasons>& computed) {
  return std::accumulate(computed.begin(), computed.end(), 0u);
}

}  // namespace

std::optional<std::uint32_t> EarlyReadPace::next(std::uint32_t ready, std::uint32_t prompt) const {
  const std::uint32_t whole = ready / kBlockTokens * kBlockTokens;
  if (is_over_ || is_open_ || whole >= prompt || whole < asked_ + std::max(kEarlyTokens, asked_ / 8))
    return std::nullopt;
  return whole;
}

void EarlyReadPace::begin(std::uint32_t tokens) {
  asked_ = tokens;
  is_open_ = is_queued_ = true;
}

void EarlyReadPace::started(const ContextSources& from) {
  const std::uint32_t computed = sum_of(from.computed);
  const bool is_first = !std::exchange(has_started_, true);
  tokens_ += from.shared;
  computed_ += computed;
  if (is_first) had_ = from.device + from.host + from.disk;
  if (computed > kBlockTokens || (!is_first && from.host + from.disk > 0)) is_over_ = true;
  is_queued_ = false;
  reached_ = asked_;
  found_ = from;
}

void EarlyReadPace::restored(const ContextSources& from) {
  const std::uint32_t late = sum_of(from.computed) - sum_of(found_.computed);
  computed_ += late;
  tokens_ -= found_.shared - from.shared;
  if (late > kBlockTokens) is_over_ = true;
}

void EarlyReadPace::ended(StatusCode code) {
  if (is_queued_ && code == StatusCode::kOk) tokens_ += asked_ - std::exchange(reached_, asked_);
  if (code != StatusCode::kOk && code != StatusCode::kResourceExhausted) is_over_ = true;
  is_queued_ = is_open_ = false;
}

ContextSources EarlyReadPace::as_read(ContextSources found) const {
  const std::uint32_t here = found.device + found.host + found.disk;
  const std::uint32_t brought = std::min(here - std::min(here, had_), tokens_);
  std::uint32_t left = brought;
  for (std::uint32_t* from : {&found.device, &found.host, &found.disk}) {
    const std::uint32_t taken = std::min(left, *from);
    *from -= taken;
    left -= taken;
  }
  found.shared += brought;
  found.hidden = std::min(found.hidden, found.disk);
  return found;
}

}  // namespace loci
