// Growth and suspension, and forming a pass.
//
// A pass takes one token of each running decode, then what prompts lack, first come first served, within
// the budget; then as many waiting requests as there is budget for join (Pensieve §4.2).
//
// Two requests that lack the same block: the first in order claims it for this pass; the other stops
// before it and looks again when the pass is done. So nothing is computed twice, and when the first ends
// the other goes on from where the block was left. The first in order never waits, so nothing deadlocks.
#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core_state.h"

namespace loci {

void Core::State::schedule(Plan& plan) {
  grow();
  CorePass pass;
  pass.budget = config_.max_batch_tokens;
  for (CoreRequest* request : running_) {
    if (request->decoding) add_spans(*request, pass);
  }
  for (CoreRequest* request : running_) {
    if (!request->decoding) add_spans(*request, pass);
  }
  while (pass.budget > 0) {
    CoreRequest* admitted = admit_head(pass, plan);
    if (admitted == nullptr) break;
    add_spans(*admitted, pass);
  }
  LOCI_CHECK(!pass.spans.empty() || running_.empty(), "the first that runs has something to compute");
  if (!pass.spans.empty()) emit(std::move(pass), plan);
}

// Gives every request whose next token opens a new block that block, the earliest arrivals first; where
// there is none, the latest arrivals give up theirs (Pensieve §4.3.5).
void Core::State::grow() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    CoreRequest& request = *running_[i];
    while (request.running && request.length() > request.blocks.size() * kBlockTokens) {
      if (!grow(request)) suspend_latest();
    }
  }
}

bool Core::State::grow(CoreRequest& request) {
  BlockPin pin = index_.open_tail(request.blocks.back().block());
  if (!index_.place(pin.block())) return false;
  request.tail = index_.claim(pin.block());
  request.table.push_back(index_.block(pin.block()).device->slot.slot());
  request.blocks.push_back(std::move(pin));
  return true;
}

void Core::State::suspend_latest() {
  LOCI_CHECK(running_.size() > 1, "a request that is alone has the whole pool");
  CoreRequest& latest = *running_.back();
  stop_running(latest);
  ++latest.suspensions;
  ++totals_.suspensions_total;
  queue_.push(latest.arrival, latest.id);
}

// Lets go of all blocks, the deepest first. What they hold stays in the index.
void Core::State::stop_running(CoreRequest& request) {
  request.tail.reset();
  while (!request.blocks.empty()) request.blocks.pop_back();
  request.table.clear();
  request.running = false;
  request.decoding = false;
  running_.erase(std::find(running_.begin(), running_.end(), &request));
  head_blocked_ = false;
}

// What this pass may add to a block that lacks state: `filled` is what it has before, with the pass's
// copies. Absent: another request fills it in this pass.
std::optional<CorePiece> Core::State::open_piece(CoreRequest& request, std::uint32_t block_number,
                                                 CorePass& pass) {
  const BlockId block = request.blocks[block_number].block();
  for (const CoreCopy& copy : pass.copies) {
    if (copy.request == &request && copy.target.block == block) return copy.target;
  }
  CorePiece piece{block, index_.block(block).filled(), std::nullopt};
  if (request.tail && request.tail->block() == block) return piece;
  std::optional<AppendToken> claim = index_.claim(block);
  if (!claim) return std::nullopt;
  piece.claim = pass.claims.size();
  pass.claims.push_back(std::move(*claim));
  return piece;
}

// Adds what the request lacks, from the left: a span for every range.
void Core::State::add_spans(CoreRequest& request, CorePass& pass) {
  const auto filled = [&](std::uint32_t i) { return index_.block(request.blocks[i].block()).filled(); };
  const auto block_count = static_cast<std::uint32_t>(request.blocks.size());
  while (request.whole_blocks < block_count && filled(request.whole_blocks) == kBlockTokens) {
    ++request.whole_blocks;
  }
  bool adjacent = false;  // to the last span's end
  for (std::uint32_t i = request.whole_blocks; i < block_count && pass.budget > 0; ++i) {
    const std::uint32_t begin = i * kBlockTokens;
    const std::uint32_t wanted = std::min(kBlockTokens, request.length() - begin);
    if (filled(i) >= wanted) {
      adjacent = false;
      continue;
    }
    std::optional<CorePiece> piece = open_piece(request, i, pass);
    if (!piece) break;
    const std::uint32_t count = std::min(wanted - piece->filled, pass.budget);
    if (!adjacent || piece->filled > 0) {
      pass.spans.push_back({&request, begin + piece->filled, 0, false, pass.pieces.size(), 0});
    }
    piece->filled += count;
    CoreSpan& span = pass.spans.back();
    span.count += count;
    ++span.piece_count;
    span.sample = span.position + span.count == request.length();
    pass.pieces.push_back(*piece);
    pass.budget -= count;
    adjacent = true;
    if (piece->filled < wanted) break;
  }
}

void Core::State::emit(CorePass pass, Plan& plan) {
  pass.id = OperationId(++passes_);
  Pass& out = plan.pass.emplace();
  out.id = pass.id;
  const auto enlist = [&pass](CoreRequest* request) {
    if (!request->in_pass) pass.requests.push_back(request);
    request->in_pass = true;
  };
  const auto slot = [this](BlockId block) { return index_.block(block).device->slot.slot(); };
  for (const CoreCopy& copy : pass.copies) {
    enlist(copy.request);
    out.copies.push_back({slot(copy.source.block()), slot(copy.target.block), copy.target.filled});
  }
  out.spans.reserve(pass.spans.size());
  plan.spans.reserve(pass.spans.size());
  for (const CoreSpan& span : pass.spans) {
    enlist(span.request);
    const CoreRequest& request = *span.request;
    Span& s = out.spans.emplace_back();
    const auto first = request.tokens.begin() + span.position;
    s.tokens.assign(first, first + span.count);
    s.position = span.position;
    s.layers = {0, config_.layers};
    const std::uint32_t blocks = (span.position + span.count + kBlockTokens - 1) / kBlockTokens;
    s.tables.resize(1);
    s.tables[0].blocks.assign(request.table.begin(), request.table.begin() + blocks);
    s.logits = span.sample ? LogitsWanted::kLast : LogitsWanted::kNone;
    plan.spans.push_back({request.id, span.sample});
    totals_.tokens_computed_total += span.count;
  }
  ++totals_.passes_total;
  in_flight_ = std::move(pass);
}

}  // namespace loci
