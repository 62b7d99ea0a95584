// What a request's tokens find in the index, and taking the request into the batch.
//
// All blocks of a request's tokens are placed and pinned when it is admitted, so a prompt that has
// begun never lacks memory. The block of the last token is the request's own tail even when the index
// has it whole: the last token is computed again for its logits, and nobody writes where others read.
#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core_state.h"

namespace loci {

// A block that lacks a copy may begin with the state of a sibling that has the same first tokens.
void Core::State::probe_siblings(BlockId parent, std::span<const TokenId> tokens, CoreProbe& found,
                                 CoreProbes& probes) const {
  const ChildMatch match = parent == kNoBlock ? ChildMatch{} : index_.match_children(parent, tokens);
  if (match.run == 0) {
    ++probes.slots;
    return;
  }
  found.sibling = match.child;
  found.run = match.run;
  const Block& sibling = index_.block(match.child);
  if (index_.can_take_over(match.child) && sibling.filled() == match.run) {
    found.source = CoreProbe::Source::kTakeOver;
    ++probes.pins;
    return;
  }
  found.source = CoreProbe::Source::kCopy;
  ++probes.slots;
  if (sibling.evictable()) ++probes.copy_pins;
}

CoreProbes Core::State::probe(const CoreRequest& request) const {
  CoreProbes probes;
  probes.root = hasher_.root(request.group);
  const std::span<const TokenId> tokens(request.tokens);
  const std::uint32_t shared = (request.length() - 1) / kBlockTokens;
  probes.blocks.reserve(shared + 1);
  ChainKey key = probes.root;
  BlockId parent = index_.find(key);
  for (std::uint32_t i = 0; i < shared; ++i) {
    CoreProbe& found = probes.blocks.emplace_back();
    const auto block_tokens = tokens.subspan(i * kBlockTokens, kBlockTokens);
    key = hasher_.child(key, block_tokens);
    found.key = key;
    if (parent != kNoBlock) found.node = index_.find(key);
    const bool has_copy = found.node != kNoBlock && index_.block(found.node).device.has_value();
    if (!has_copy) {
      probe_siblings(parent, block_tokens, found, probes);
    } else if (index_.block(found.node).evictable()) {
      ++probes.pins;
    }
    parent = found.node;
  }
  CoreProbe& tail = probes.blocks.emplace_back();
  const auto tail_tokens = tokens.subspan(shared * kBlockTokens);
  probe_siblings(parent, tail_tokens, tail, probes);
  // The last token is computed in any case. (A run of that token alone may be taken over, for its slot.)
  const auto run_max = static_cast<std::uint32_t>(tail_tokens.size() - 1);
  tail.run = std::min(tail.run, run_max);
  if (tail.run == 0 && tail.source == CoreProbe::Source::kCopy) tail.source = CoreProbe::Source::kNone;
  return probes;
}

// Null: the queue is empty, the batch is full or blocks are missing.
CoreRequest* Core::State::admit_head(CorePass& pass, Plan& plan) {
  if (queue_.empty() || head_blocked_ || running_.size() >= running_max_) return nullptr;
  CoreRequest& request = *requests_.at(queue_.head());
  const CoreProbes probes = probe(request);
  const std::uint32_t lasting = probes.slots + probes.pins;
  const std::uint32_t reserve = running_.empty() ? 0 : reserve_blocks_;
  if (lasting + reserve > index_.available()) {
    // A request that is alone has the whole pool: arrivals that need more were refused.
    LOCI_CHECK(!running_.empty(), "a request that fits the pool is admitted when it is alone");
    head_blocked_ = true;
    return nullptr;
  }
  queue_.erase(request.arrival);
  admit(request, probes, lasting + probes.copy_pins <= index_.available(), pass);
  if (!request.started) {
    request.started = true;
    request.cached_tokens = cached_tokens(request, pass);
    totals_.tokens_cached_total += request.cached_tokens;
    totals_.tokens_prompt_total += request.prompt_tokens;
    plan.outputs.emplace_back(Started{request.id, request.cached_tokens});
  }
  return &request;
}

void Core::State::admit(CoreRequest& request, const CoreProbes& probes, bool with_copies, CorePass& pass) {
  // First everything that is there is pinned, so that making room for the rest takes none of it.
  BlockPin root = index_.open_root(probes.root);
  std::vector<std::optional<BlockPin>> siblings(probes.blocks.size());
  for (std::size_t i = 0; i < probes.blocks.size(); ++i) {
    const CoreProbe& found = probes.blocks[i];
    if (found.node != kNoBlock) request.blocks.push_back(index_.pin(found.node));
    if (found.source == CoreProbe::Source::kTakeOver ||
        (found.source == CoreProbe::Source::kCopy && with_copies)) {
      siblings[i] = index_.pin(found.sibling);
    }
  }
  admit_blocks(request, probes, std::move(root), std::move(siblings), pass);
  request.table.clear();
  for (const BlockPin& pin : request.blocks) {
    request.table.push_back(index_.block(pin.block()).device->slot.slot());
  }
  request.running = true;
  request.decoding = false;
  request.whole_blocks = 0;
  const auto place = std::upper_bound(running_.begin(), running_.end(), &request,
                                      [](auto* a, auto* b) { return a->arrival < b->arrival; });
  running_.insert(place, &request);
}

void Core::State::admit_blocks(CoreRequest& request, const CoreProbes& probes, BlockPin root,
                               std::vector<std::optional<BlockPin>> siblings, CorePass& pass) {
  const auto place = [&](BlockId block) {
    const bool placed = index_.place(block);
    LOCI_CHECK(placed, "the blocks that admission has counted are there");
  };
  const std::size_t shared = probes.blocks.size() - 1;
  BlockId parent = root.block();
  for (std::size_t i = 0; i < shared; ++i) {
    const CoreProbe& found = probes.blocks[i];
    const auto tokens = std::span<const TokenId>(request.tokens).subspan(i * kBlockTokens, kBlockTokens);
    const bool take_over = found.source == CoreProbe::Source::kTakeOver;
    if (i == request.blocks.size()) {
      request.blocks.push_back(take_over ? index_.promote(std::move(*siblings[i]), found.key, tokens)
                                         : index_.open_full(parent, found.key, tokens));
    } else if (take_over) {
      index_.adopt(found.node, std::move(*siblings[i]));
    }
    parent = request.blocks[i].block();
    if (!index_.block(parent).device) place(parent);
    if (found.source == CoreProbe::Source::kCopy && siblings[i]) {
      add_copy(request, std::move(*siblings[i]), parent, found.run, false, pass);
    }
  }
  const CoreProbe& found = probes.blocks.back();
  if (found.source == CoreProbe::Source::kTakeOver) {
    request.blocks.push_back(std::move(*siblings.back()));
    request.tail = index_.claim(request.blocks.back().block());
    index_.truncate(*request.tail, found.run);
    return;
  }
  request.blocks.push_back(index_.open_tail(parent));
  const BlockId tail = request.blocks.back().block();
  place(tail);
  request.tail = index_.claim(tail);
  if (siblings.back()) {
    add_copy(request, std::move(*siblings.back()), tail, found.run, true, pass);
  }
}

void Core::State::add_copy(CoreRequest& request, BlockPin source, BlockId target, std::uint32_t tokens,
                           bool to_tail, CorePass& pass) {
  CorePiece piece{target, tokens, std::nullopt};
  if (!to_tail) {
    std::optional<AppendToken> claim = index_.claim(target);
    LOCI_CHECK(claim.has_value(), "a block that was just placed has no writer");
    piece.claim = pass.claims.size();
    pass.claims.push_back(std::move(*claim));
  }
  pass.copies.push_back({&request, std::move(source), piece});
}

// The tokens whose state is there, or is copied before the next pass.
std::uint32_t Core::State::cached_tokens(const CoreRequest& request, const CorePass& pass) const {
  std::uint32_t cached = 0;
  for (const BlockPin& pin : request.blocks) cached += index_.block(pin.block()).filled();
  for (const CoreCopy& copy : pass.copies) {
    if (copy.request == &request) cached += copy.target.filled;
  }
  return cached;
}

}  // namespace loci
