// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/running_pass.h"

#include <algorithm>
#include <utility>

namespace loci::sim {
namespace {

bool has(const std::vector<std::uint64_t>& transfers, std::uint64_t transfer) {
  return std::find(transfers.begin(), transfers.end(), transfer) != transfers.end();
}

}  // namespace

RunningPass::RunningPass(PassDone done, PassTime time, Hidden hidden, Nanos began, std::uint32_t layers)
    : done_(std::move(done)),
      time_(time),
      hidden_(hidden),
      began_(began),
      layers_(std::max(layers, 1u)),
      reads_(done_.spans.size()) {}

void RunningPass::read(std::size_t span, std::uint64_t transfer) {
  if (!has(reads_[span], transfer)) reads_[span].push_back(transfer);
  if (!has(awaited_, transfer)) awaited_.push_back(transfer);
}

// Layer k of n is there at began + (ended - began)(k + 1) / n and computed no sooner: of the pass that reads
// it the first layer or the last decides (ends()).
bool RunningPass::arrived(const Transfer& transfer) {
  if (std::erase(awaited_, transfer.moves.front()) == 0) return false;
  const Nanos layer = transfer.began + (transfer.ended - transfer.began) / layers_;
  const Nanos first = transfer.rounds > 0 ? transfer.first_round : layer;
  first_layer_ = std::max(first_layer_.value_or(first), first);
  if (transfer.rounds > 0) {
    rounds_ = last_round_ ? std::min<Nanos>(rounds_, transfer.rounds) : transfer.rounds;
    last_round_ = std::max(last_round_.value_or(transfer.ended), transfer.ended);
  }
  last_layer_ = std::max(last_layer_.value_or(transfer.ended), transfer.ended);
  return awaited_.empty();
}

bool RunningPass::failed(const Transfer& transfer) {
  poison(transfer.moves.front());
  return std::erase(awaited_, transfer.moves.front()) > 0 && awaited_.empty();
}

void RunningPass::give_up() {
  for (const std::uint64_t late : std::exchange(awaited_, {})) poison(late);
}

Nanos RunningPass::ends(Nanos now) const {
  const Nanos all = lasts();
  const Nanos ready = last_layer_ ? std::max(*first_layer_ + all, *last_layer_ + all / layers_) : 0;
  const Nanos behind_rounds = last_round_ ? *last_round_ + all / rounds_ : 0;
  return std::max({began_ + all, ready, behind_rounds, now});
}

PassDone RunningPass::take_done() && {
  done_.projected = {projected_ * static_cast<std::uint64_t>(layers_), projecting()};
  return std::move(done_);
}

void RunningPass::poison(std::uint64_t transfer) {
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    if (!has(reads_[i], transfer)) continue;
    failed_spans_ += done_.spans[i].ok ? 1 : 0;
    done_.spans[i] = {.ok = false};
  }
}

}  // namespace loci::sim
