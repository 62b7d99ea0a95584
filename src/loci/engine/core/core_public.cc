// SPDX-License-Identifier: Apache-2.0
// Public prefixes (core.h): looking them up, keeping and releasing them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {

// The root of the request's first block.
ChainKey Core::State::first_key(const CoreRequest& request) const {
  const bool in_public = request.is_public || request.public_blocks > 0;
  return in_public ? hasher_.public_root() : hasher_.root(request.sharing);
}

// The public blocks that the request begins with, and the key of what its own are below. Blocks that were
// public once are passed by: whether their state is still there depends on what others do.
void Core::State::probe_public(const CoreRequest& request, CoreProbes& probes) const {
  probes.root = request.is_public ? hasher_.public_root() : hasher_.root(request.sharing);
  if (request.is_public || public_.empty()) return;
  const std::span<const TokenId> tokens(request.tokens);
  std::uint32_t shared = (request.length() - 1) / kBlockTokens;
  if (request.lineage) shared = std::min(shared, request.lineage->front_blocks);
  ChainKey key = hasher_.public_root();
  while (probes.public_blocks < shared) {
    key = hasher_.child(key, tokens.subspan(probes.public_blocks * kBlockTokens, kBlockTokens));
    const BlockId node = index_.find(key);
    if (node == kNoBlock || index_.block(node).published == 0) break;
    CoreProbe& found = probes.blocks.emplace_back();
    found.key = key;
    found.node = node;
    ++probes.public_blocks;
  }
  if (probes.public_blocks > 0) probes.root = hasher_.gate(probes.blocks.back().key, request.sharing);
}

// The first block after the public ones may begin with the first tokens of a public one.
void Core::State::probe_public_siblings(const CoreProbes& probes, std::span<const TokenId> tokens,
                                        CoreProbe& found) const {
  if (public_.empty()) return;
  const BlockId parent = probes.public_blocks == 0 ? index_.find(hasher_.public_root())
                                                   : probes.blocks[probes.public_blocks - 1].node;
  const ChildMatch match = index_.match_children(parent, tokens);
  if (match.run <= found.run || index_.block(match.child).published == 0) return;
  found.sibling = match.child;
  found.run = match.run;
  found.source = CoreProbe::Source::kCopy;
}

// The root or the gate that the request's own blocks are below.
BlockPin Core::State::open_parent(const CoreProbes& probes) {
  if (probes.public_blocks == 0) return index_.open_root(probes.root);
  return index_.open_gate(probes.blocks[probes.public_blocks - 1].node, probes.root);
}

// Together they hold at most half of each pool, and leave room for a window.
Status Core::State::public_refusal(const Arrival& event) const {
  const std::uint64_t wanted = (event.prompt.size() + kBlockTokens - 1) / kBlockTokens;
  std::uint64_t held = public_held_;
  for (const auto& [id, request] : requests_) {
    if (request->is_public) held += (request->length() + kBlockTokens - 1) / kBlockTokens;
  }
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const std::uint64_t count = config_.groups[group].block_count;
    const bool room = !windowed(group) || held + wanted + ring_blocks(group, kBlockTokens) <= count;
    if ((held + wanted) * 2 <= count && room) continue;
    return invalid_argument(
        fmt::format("public prefixes may hold half of the memory for state, {} blocks of {} tokens; {} are "
                    "held and this one needs {}: shorten it, release others or start the server with more "
                    "device memory",
                    count / 2, kBlockTokens, held, wanted),
        "prompt");
  }
  return {};
}

void Core::State::keep_public(CoreRequest& request) {
  request.tail.reset();
  CorePublicPrefix& prefix = public_[request.id];
  prefix.tokens = request.length();
  prefix.blocks = std::exchange(request.blocks, {});
  for (const BlockPin& pin : prefix.blocks) {
    if (index_.block(pin.block()).published == 0) ++public_held_;
    index_.publish(pin);
  }
}

void Core::State::on(const Withdraw& event, Plan&) {
  const auto found = public_.find(event.prefix);
  if (found == public_.end()) return;
  std::vector<BlockPin>& blocks = found->second.blocks;
  while (!blocks.empty()) {  // the deepest first
    index_.withdraw(blocks.back());
    if (index_.block(blocks.back().block()).published == 0) --public_held_;
    blocks.pop_back();
  }
  public_.erase(found);
  blocked_head_.reset();
}

// Nothing else runs, and what is public leaves too little for it.
void Core::State::end_without_memory(CoreRequest& request, Plan& plan) {
  LOCI_CHECK(public_held_ > 0, "a request that fits the pool has room when it is alone");
  if (request.started) {
    end(request, FinishReason::kLength, plan);
    return;
  }
  reject_waiting(request,
                 invalid_argument(fmt::format("the prompt has {} tokens, more than the memory that public "
                                              "prefixes leave; shorten it or start the server with more "
                                              "device memory",
                                              request.prompt_tokens),
                                  "prompt"),
                 plan);
}

std::vector<PublicPrefix> Core::State::public_prefixes() const {
  std::vector<PublicPrefix> out;
  for (const auto& [id, prefix] : public_) {
    out.push_back({id, prefix.tokens, static_cast<std::uint32_t>(prefix.blocks.size())});
  }
  return out;
}

// 2. What is public is counted, and is a part of exactly the prefixes that are there.
void Core::State::check_public() const {
  std::map<BlockId, std::uint32_t> published;
  for (const auto& [id, prefix] : public_) {
    ChainKey key = hasher_.public_root();
    for (const BlockPin& pin : prefix.blocks) {
      const Block& b = index_.block(pin.block());
      LOCI_CHECK(b.parent == index_.find(key), "invariant 5: a public prefix is a path from the public root");
      if (b.kind == BlockKind::kFull) {
        key = hasher_.child(key, b.tokens);
        LOCI_CHECK(b.key == key && b.filled == kBlockTokens, "invariant 4: public blocks are whole");
      }
      ++published[pin.block()];
    }
  }
  LOCI_CHECK(published.size() == public_held_, "invariant 1: public blocks are counted once");
  for (std::uint32_t i = 0; i < index_.id_bound(); ++i) {
    const auto found = published.find(BlockId(i));
    LOCI_CHECK(index_.block(BlockId(i)).published == (found == published.end() ? 0 : found->second),
               "invariant 2: what is public has its prefix");
  }
}

}  // namespace loci
