// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/pass_times.h"

#include <algorithm>

#include "loci/base/check.h"

namespace loci {
namespace {

// Of fewer blocks it is the threads' waiting for one another that is timed.
constexpr std::uint64_t kProjectedLeast = 8;

// So many passes with prompts, in a row, all had decodes too: no prompt is computed alone.
constexpr std::uint32_t kBesideDecodes = 3;

// A pass that waited took clearly less than predicted if it took less than this share: of those that took
// about as long as predicted only the faster half would count.
constexpr struct {
  Nanos at, of;
} kClearly = {4, 5};

using Wide = unsigned __int128;

}  // namespace

std::uint32_t PassTimes::fitting(const PassRows& decodes, std::span<const PromptRun> prompts,
                                 std::uint32_t tokens_max) const {
  const auto predict_both = [this](const PassRows& rows) {
    return of(PassKind::kBoth).apply_high(costs_.pass(rows.rows, rows.context));
  };
  const Nanos alone = predict({PassKind::kDecodes, decodes});
  return fitting_tokens(predict_both, std::max(limit_, kDecodesShare * alone), decodes, prompts, tokens_max);
}

Nanos PassTimes::compute(std::uint32_t begin, std::uint32_t count) const {
  const PassKind kind = beside_decodes_ < kBesideDecodes ? PassKind::kPrompts : PassKind::kBoth;
  return of(kind).apply(costs_.compute(begin, count));
}

void PassTimes::begin(const PassWork& work, bool waits, Nanos now) {
  in_flight_.push_back({work, waits, now});
}

void PassTimes::end(const End& end, Nanos now) {
  const auto& [projected, layers, is_whole] = end;
  LOCI_CHECK(!in_flight_.empty(), "a pass that ends has begun");
  const Flight ended = in_flight_.front();
  in_flight_.pop_front();
  if (!in_flight_.empty()) in_flight_.front().begun_at = now;
  if (ended.outdated) return;
  if (projected.slices >= kProjectedLeast * layers) {
    const Wide predicted = static_cast<Wide>(costs_.project_block()) * projected.slices / layers;
    projecting_.observe(static_cast<Nanos>(std::min<Wide>(predicted, kCostMax)), projected.took);
  }
  // (It cannot be. Who says so may be wrong about the rest too.)
  if (projected.took >= now - ended.begun_at && projected.took > 0) return;
  const Nanos took = now - ended.begun_at - projected.took;
  if (ended.waits && (!is_whole || took >= predict(ended.work) / kClearly.of * kClearly.at)) return;
  const PassKind kind = ended.work.kind;
  corrections_[static_cast<std::size_t>(kind)].observe(
      costs_.pass(ended.work.rows.rows, ended.work.rows.context), took);
  if (kind == PassKind::kPrompts) beside_decodes_ = 0;
  if (kind == PassKind::kBoth) ++beside_decodes_;
}

void PassTimes::costs_changed() {
  corrections_ = {};
  projecting_ = {};
  beside_decodes_ = 0;
  for (Flight& flight : in_flight_) flight.outdated = true;
}

void PassTimes::check_invariants(std::size_t passes, Nanos now) const {
  LOCI_CHECK(in_flight_.size() == passes, "invariant 10: each pass in flight is timed");
  for (const Flight& flight : in_flight_) {
    LOCI_CHECK(flight.begun_at <= now && flight.work.rows.rows > 0,
               "invariant 10: a pass that is timed has begun, and computes something");
  }
}

}  // namespace loci
