// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/pass_former.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace loci {
namespace {

// What a pass waits for loads at least, whatever is predicted: with decodes in it, and without.
constexpr Nanos kPatienceOfDecodes = 20 * kNanosPerMilli;
constexpr Nanos kPatienceAlone = 500 * kNanosPerMilli;
// Nodes of a long prompt are in no cache. Those of so many blocks ahead are read meanwhile.
constexpr std::size_t kFillsAhead = 16;

}  // namespace

// --- what prompts lack ---

std::uint64_t PassFormer::missing_tokens(const CoreRequest& request) const {
  const bool flies = request.passes->in_flight > 0;  // what the passes in flight compute
  const std::uint32_t first = flies ? request.passes->computes_to / kBlockTokens : request.whole_blocks;
  const auto blocks = static_cast<std::uint32_t>(request.blocks.size());
  const std::uint32_t touched = std::min(request.untouched_from, blocks);
  std::uint64_t missing = 0;
  for (std::uint32_t i = first; i < touched; ++i) {
    if (i + kFillsAhead < request.blocks.size())
      index_.prefetch_fill(request.blocks[i + kFillsAhead].block());
    if (transfers_.loading(request.blocks[i].block())) continue;
    const std::uint32_t begin = i * kBlockTokens;
    const std::uint32_t wanted = std::min(kBlockTokens, request.length() - begin);
    std::uint32_t there = index_.block(request.blocks[i].block()).filled;
    if (flies && request.passes->computes_to > begin)
      there = std::max(there, request.passes->computes_to - begin);
    missing += wanted - std::min(wanted, there);
  }
  // Of what follows there is nothing but what passes in flight compute.
  const std::uint32_t end = std::min(request.length(), blocks * kBlockTokens);
  const std::uint32_t begin =
      std::max(std::max(first, touched) * kBlockTokens, flies ? request.passes->computes_to : 0);
  return missing + (end - std::min(begin, end));
}

CorePrompts PassFormer::prompts() const {
  CorePrompts out;
  for (const CoreRequest* request : batch_) {
    if (!lacks_tokens(*request)) continue;
    const std::uint64_t missing = missing_tokens(*request);
    out.add(*request, missing);
    out.runs.push_back(run_of(*request, missing));
  }
  return out;
}

std::uint64_t PassFormer::prompt_tokens() const {
  std::uint64_t tokens = 0;
  for (const CoreRequest* request : batch_) {
    if (lacks_tokens(*request)) tokens += missing_tokens(*request);
  }
  return tokens;
}

PromptRun PassFormer::run_of(const CoreRequest& request, std::uint64_t missing) {
  const auto count = static_cast<std::uint32_t>(missing);
  return {request.length() - count, count};
}

std::vector<PromptRun> PassFormer::prompt_runs() const {
  std::vector<PromptRun> runs;
  for (const CoreRequest* request : batch_) {
    if (lacks_tokens(*request)) runs.push_back(run_of(*request, missing_tokens(*request)));
  }
  return runs;
}

void PassFormer::keep_to_time(CorePass& pass, std::vector<PromptRun> prompts,
                              std::uint32_t tokens_max) const {
  if (!has_time_limit()) return;
  prompts.push_back({0, tokens_max});
  pass.budget = pass_times_.fitting(work_of(pass).rows, prompts, tokens_max);
}

// --- adding to a pass ---

bool PassFormer::any_loading(const CoreRequest& request) const {
  return std::any_of(request.loads.begin(), request.loads.end(),
                     [&](std::uint32_t i) { return transfers_.loading(request.blocks[i].block()); });
}

// What the first pass that reads its hidden states takes more.
Nanos PassFormer::projecting(const CoreRequest& request) const {
  return request.to_project.blocks == 0 ? 0 : pass_times_.project_block() * request.to_project.blocks;
}

// The pass is the first that reads the request's hidden states. While others wait for it, the rows that are
// projected take of its budget as many tokens as are computed in that time; but a few are left, as the
// request would never get there else.
void PassFormer::charge_projecting(CoreRequest& request, CorePass& pass) const {
  const Nanos takes = projecting(request);
  request.to_project = {};
  if (takes == 0) return;
  pass.projecting += takes;
  if (!has_time_limit()) return;
  const std::uint32_t last = request.length() - std::min(request.length(), kPassRowsStep);
  const Nanos token = std::max<Nanos>(pass_times_.compute(last, kPassRowsStep) / kPassRowsStep, 1);
  pass.overdrawn += static_cast<std::uint64_t>(takes / token);
  pay_for_projecting(pass);
}

// Takes what is overdrawn off the budget, but leaves one step of it.
void PassFormer::pay_for_projecting(CorePass& pass) {
  const std::uint32_t least = std::min(pass.budget, kPassRowsStep);
  const std::uint64_t paid = std::min<std::uint64_t>(pass.overdrawn, pass.budget - least);
  pass.budget -= static_cast<std::uint32_t>(paid);
  pass.overdrawn -= paid;
}

// The first of its blocks that is being loaded.
std::uint32_t PassFormer::first_loading(const CoreRequest& request) const {
  const auto found = std::find_if(request.loads.begin(), request.loads.end(), [&](std::uint32_t i) {
    return transfers_.loading(request.blocks[i].block());
  });
  return found == request.loads.end() ? UINT32_MAX : *found;
}

// Somebody waits for its next token. A pass behind one in flight keeps those waiting who decode in that one.
bool PassFormer::decodes_wait(const PassWork& work) const {
  return !flights_.empty() || work.kind != PassKind::kPrompts;
}

// Its spans may read what is still being loaded: that comes before it is needed, or nobody who decodes waits
// for it.
bool PassFormer::joins(CoreRequest& request, const CorePass& pass) {
  std::erase_if(request.loads,
                [&](std::uint32_t i) { return !transfers_.loading(request.blocks[i].block()); });
  if (request.loads.empty()) request.load_phase.settle(LoadPhase::kNone);
  if (request.loads.empty() || request.load_phase.is(LoadPhase::kJoined)) return true;
  // What becomes public is there when it does.
  if (request.load_phase.is(LoadPhase::kHeldBack) || request.is_public) return false;
  PassWork work = work_of(pass);
  const bool decodes = decodes_wait(work);
  Nanos arrives = 0;
  for (const std::uint32_t i : request.loads) {
    arrives = std::max(arrives, transfers_.arrives_at(request.blocks[i].block()));
  }
  const auto own = static_cast<std::uint32_t>(std::min<std::uint64_t>(pass.budget, missing_tokens(request)));
  work.rows.add(request.length() - own, own);
  if (work.kind == PassKind::kDecodes) work.kind = PassKind::kBoth;
  const Nanos lasts = pass_times_.predict(work) + projecting(request);
  if (decodes) {
    // What is late is not waited for: nobody knows for how long. Else layer k of n arrives by
    // arrives * (k + 1) / n and is used at pass * k / n.
    if (arrives < now_ || (arrives - now_) * 2 > lasts) return false;
  } else if (arrives - now_ > std::max(lasts, kPatienceAlone)) {
    return false;  // others may come meanwhile
  }
  request.load_phase.become(LoadPhase::kJoined);
  return true;
}

// What this pass may add to a block that lacks state: `filled` is what it has before, with the pass's
// copies. Absent: another request fills it in this pass, or the request has no slot for more.
std::optional<CorePiece> PassFormer::open_piece(CoreRequest& request, std::uint32_t block_number,
                                                CorePass& pass) {
  const BlockId block = request.blocks[block_number].block();
  for (const CoreCopy& copy : pass.copies) {
    if (copy.request == &request && copy.target.block == block) return copy.target;
  }
  CorePiece piece{block, index_.block(block).filled, std::nullopt};
  const bool own = request.tail && request.tail->block() == block;
  std::optional<AppendToken> claim = own ? std::nullopt : index_.claim(block);
  if ((!own && !claim) || !windows_.take_parts(request, block_number)) return std::nullopt;
  if (own) return piece;
  piece.claim = pass.claims.size();
  pass.claims.push_back(std::move(*claim));
  return piece;
}

// Whether a span that ends where `block` begins may go on into it: in each group it writes from one
// position on.
bool PassFormer::continues(const CoreSpan& span, const Block& block) const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (block.filled_in(group) > 0 && span.write_from[group] < span.position + span.count) return false;
  }
  return true;
}

// `piece`: before these tokens are computed.
void PassFormer::add_piece(CoreRequest& request, std::uint32_t position, std::uint32_t count, CorePiece piece,
                           bool adjacent, CorePass& pass) const {
  const Block& block = index_.block(piece.block);
  const std::uint32_t begin = position - piece.filled;
  const bool open = adjacent && piece.filled == 0 && continues(pass.spans.back(), block);
  if (!open) pass.spans.push_back({&request, position, 0, false, pass.pieces.size(), 0});
  CoreSpan& span = pass.spans.back();
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const std::uint32_t there = std::max(block.filled_in(group), piece.filled);
    if (!open || there > 0) span.write_from[group] = begin + there;
  }
  span.count += count;
  ++span.piece_count;
  span.sample = span.position + span.count == request.length();
  piece.filled += count;
  pass.pieces.push_back(piece);
  pass.budget -= count;
}

bool PassFormer::add_spans(CoreRequest& request, CorePass& pass) {
  const bool gave_back = windows_.advance(request);
  const bool joined = joins(request, pass);
  const auto block_count = static_cast<std::uint32_t>(request.blocks.size());
  const std::uint32_t arriving = first_loading(request);
  bool adjacent = false;                             // to the last span's end
  const bool flies = request.passes->in_flight > 0;  // what the pass in flight computes of it
  const std::uint32_t first = flies ? request.passes->computes_to / kBlockTokens : request.whole_blocks;
  if (windows_.any() && !joined && arriving < first) return gave_back;
  for (std::uint32_t i = first; i < block_count && pass.budget > 0; ++i) {
    const std::uint32_t begin = i * kBlockTokens;
    const std::uint32_t wanted = std::min(kBlockTokens, request.length() - begin);
    const std::optional<CorePiece> begun = flies ? flights_.left_begun(request, i) : std::nullopt;
    if (index_.block(request.blocks[i].block()).filled >= wanted) {
      if (windows_.any() && !windows_.take_parts(request, i)) break;
      adjacent = false;
      continue;
    }
    if (transfers_.loading(request.blocks[i].block())) {
      // (With windows others may have begun loads of blocks that the request did not hold.)
      if (!joined || (windows_.any() && !std::ranges::binary_search(request.loads, i))) break;
      adjacent = false;
      continue;
    }
    const std::optional<CorePiece> piece =
        begun ? Flights::go_on_with(*begun, pass) : open_piece(request, i, pass);
    if (!piece) break;
    if (request.to_project.blocks > 0 && i > request.to_project.first) charge_projecting(request, pass);
    const std::uint32_t count = std::min(wanted - piece->filled, pass.budget);
    add_piece(request, begin + piece->filled, count, *piece, adjacent, pass);
    pass.spans.back().reads_arriving = i > arriving;
    adjacent = true;
    if (piece->filled + count < wanted) break;
  }
  return gave_back;
}

bool PassFormer::add_prompts(const CorePrompts& prompts, CorePass& pass) {
  struct Tenant {
    std::uint64_t virtual_time;
    std::size_t place;  // of those in `prompts`
    std::uint64_t wanted;
    std::uint32_t weight;
  };
  std::vector<Tenant> tenants;
  for (std::size_t i = 0; i < prompts.tenants.size(); ++i) {
    const CorePrompts::Tenant& one = prompts.tenants[i];
    tenants.push_back({queue_.virtual_time(*one.name), i, one.wanted, queue_.weight(*one.name)});
  }
  std::ranges::stable_sort(tenants, {}, &Tenant::virtual_time);
  std::vector<std::uint64_t> wanted;
  std::vector<std::uint32_t> weights;
  for (const Tenant& tenant : tenants) {
    wanted.push_back(tenant.wanted);
    weights.push_back(tenant.weight);
  }
  const std::vector<std::uint64_t> given = divide_fairly(pass.budget, wanted, weights);
  // By their tenants; those of one in their order.
  std::vector<std::pair<std::size_t, CoreRequest*>> requests;
  for (CoreRequest* request : batch_) {
    if (lacks_tokens(*request)) requests.emplace_back(prompts.place_of(request->tenant).value(), request);
  }
  const auto place = [](const auto& one) { return one.first; };
  std::ranges::stable_sort(requests, {}, place);
  std::uint64_t left = 0;
  bool gave_back = false;
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    left += given[i];
    for (const auto& [of, request] : std::ranges::equal_range(requests, tenants[i].place, {}, place)) {
      if (left == 0) break;
      const auto limit = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, pass.budget));
      const std::uint32_t others = pass.budget - limit;
      pass.budget = limit;
      gave_back = add_spans(*request, pass) || gave_back;
      left -= limit - pass.budget;
      pass.budget += others;
      pay_for_projecting(pass);  // what its share was too small for
    }
  }
  return gave_back;
}

// --- behind the pass in flight ---

bool PassFormer::may_follow(const CoreRequest& request) const {
  if (!request.follows || request.is_public || request.phase.is(RequestPhase::kEnding) ||
      request.lost_a_load())
    return false;
  if (request.new_tokens() + 1 >= request.max_new_tokens ||
      request.length() + 1 >= windows_.sequence_tokens_max())
    return false;
  // What is still being loaded may fail to come after the pass in flight has ended well.
  return !any_loading(request);
}

void PassFormer::add_following(CoreRequest& request, std::uint32_t span, CorePass& pass) const {
  CoreSpan& next = pass.spans.emplace_back();
  next.request = &request;
  next.position = request.length();
  next.count = 1;
  next.sample = true;
  next.first_piece = pass.pieces.size();
  next.piece_count = 1;
  next.write_from.fill(next.position);
  next.token_of = span;
  const BlockId block = request.has_grown() ? kNoBlock : request.blocks.back().block();
  pass.pieces.push_back({block, next.position % kBlockTokens + 1, std::nullopt});
  --pass.budget;
}

// --- the pass is formed ---

PassWork PassFormer::work_of(const CorePass& pass) const {
  PassWork work;
  bool prompts = false, decodes = false;
  for (const CoreSpan& span : pass.spans) {
    const bool decode = span.token_of.has_value() || span.request->phase.is(RequestPhase::kDecode);
    (decode ? decodes : prompts) = true;
    work.rows.add(span.position, span.count);
  }
  if (decodes) work.kind = prompts ? PassKind::kBoth : PassKind::kDecodes;
  return work;
}

Nanos PassFormer::patience_of(const CorePass& pass) const {
  const bool waits = std::any_of(pass.spans.begin(), pass.spans.end(),
                                 [&](const CoreSpan& span) { return any_loading(*span.request); });
  if (!waits) return kWaitsForEver;
  const PassWork work = work_of(pass);
  const Nanos lasts = pass_times_.predict(work) + pass.projecting;
  return decodes_wait(work) ? std::max(kPatienceOfDecodes, lasts) : lasts + kPatienceAlone;
}

std::uint64_t PassFormer::write(const CorePass& pass, Nanos patience, Plan& plan) const {
  Pass& out = plan.pass.emplace();
  out.id = pass.id;
  out.patience = patience;
  std::uint64_t rows = 0;
  const auto slot = [this](BlockId block, std::uint32_t group) {
    return index_.block(block).parts[group]->slot.slot();
  };
  for (const CoreCopy& copy : pass.copies) {
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      // (Others may read what is there in one of the groups.)
      if (index_.block(copy.target.block).filled_in(group) >= copy.target.filled) continue;
      out.copies.push_back(
          {slot(copy.source.block(), group), slot(copy.target.block, group), copy.target.filled, group});
    }
  }
  out.spans.reserve(pass.spans.size());
  plan.spans.reserve(pass.spans.size());
  for (const CoreSpan& span : pass.spans) {
    CoreRequest& request = *span.request;
    Span& s = out.spans.emplace_back();
    s.token_of = span.token_of;
    if (span.token_of) {
      s.tokens.assign(1, TokenId(0));
    } else {
      const auto first = request.tokens.begin() + span.position;
      s.tokens.assign(first, first + span.count);
    }
    s.position = span.position;
    s.layers = {0, config_.layers};
    const std::uint32_t blocks = (span.position + span.count + kBlockTokens - 1) / kBlockTokens;
    s.tables.resize(group_count_);
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      s.tables[group].blocks = request.tables[group].share(blocks);
      const std::uint32_t write_from = span.write_from[group];
      s.tables[group].write_from = write_from > span.position ? write_from : 0;
    }
    s.logits = span.sample ? LogitsWanted::kLast : LogitsWanted::kNone;
    plan.spans.push_back({request.id, span.sample});
    rows += span.count;
  }
  return rows;
}

}  // namespace loci
