// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/prefixes.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "loci/base/check.h"

namespace loci {
namespace {

// Names and nodes of a prompt are in no cache. Those of so many blocks ahead are read meanwhile.
constexpr std::size_t kKeysAhead = 16;
constexpr std::size_t kNodesAhead = 8;

}  // namespace

Prefixes::Prefixes(const CoreConfig& config, BlockIndex& index, const Transfers& transfers)
    : config_(config),
      index_(index),
      transfers_(transfers),
      hasher_(config.chain_secret, config.model_fingerprint),
      has_windows_(
          std::ranges::any_of(config.groups, [](const CoreGroup& group) { return group.window != 0; })) {}

// --- looking up ---

// A block that lacks state may begin with that of a sibling that has the same first tokens.
void Prefixes::probe_siblings(BlockId parent, std::span<const TokenId> tokens, const ProbeRules& rules,
                              CoreProbe& found) const {
  const ChildMatch match = parent == kNoBlock ? ChildMatch{} : index_.match_children(parent, tokens);
  if (match.run == 0) return;
  // Such a tail may be complete, and its slots another's, before a pass ahead copies.
  const Block& child = index_.block(match.child);
  if (rules.tails_may_move && child.kind == BlockKind::kTail && child.appending) return;
  found.sibling = match.child;
  found.run = match.run;
  const bool all = index_.can_take_over(match.child) && index_.block(match.child).filled == match.run;
  found.source = all ? CoreProbe::Source::kTakeOver : CoreProbe::Source::kCopy;
}

CoreProbes Prefixes::probe(const CoreRequest& request, const ProbeRules& rules) const {
  CoreProbes probes;
  const std::span<const TokenId> tokens(request.tokens);
  const std::uint32_t shared = (request.length() - 1) / kBlockTokens;
  probes.blocks.reserve(shared + 1);
  probes.lineage = request.lineage.get();
  probe_public(request, probes);
  ChainKey key = probes.root;
  const std::size_t named =
      request.names->public_ones == probes.public_blocks ? request.names->keys.size() : 0;
  std::size_t known_to = named;
  for (std::size_t i = 0; i < std::min(kKeysAhead, named); ++i) index_.prefetch(request.names->keys[i]);
  for (std::uint32_t i = probes.public_blocks; i < shared; ++i) {
    if (i + kKeysAhead < known_to) index_.prefetch(request.names->keys[i + kKeysAhead]);
    if (i + kNodesAhead < known_to) {
      const BlockId ahead = index_.find(request.names->keys[i + kNodesAhead]);
      index_.prefetch(ahead);
      if (ahead == kNoBlock) known_to = 0;  // nor is anything behind it
    }
    const BlockId parent = find_parent(probes, i);
    if (begins_lineage(probes.lineage, i)) key = probes.lineage->gate;
    CoreProbe& found = probes.blocks.emplace_back();
    const auto block_tokens = tokens.subspan(i * kBlockTokens, kBlockTokens);
    key = i < named ? request.names->keys[i] : hasher_.child(key, block_tokens);
    found.key = key;
    if (parent != kNoBlock) found.node = index_.find(key);
    const bool has_part = found.node != kNoBlock && index_.block(found.node).has_part();
    found.load = found.node != kNoBlock && transfers_.comes(found.node, rules.slowest);
    found.too_slow = found.node != kNoBlock && !found.load && transfers_.comes(found.node, Tier::kShared);
    if (!has_part && !found.load && probes.lineage != nullptr && i >= probes.lineage->front_blocks)
      find_original(*probes.lineage, i, rules, found);
    if (!found.load && (!has_part || lacks_a_group(found.node))) {
      probe_siblings(parent, block_tokens, rules, found);
      // (Others may read the parts that are there.)
      if (has_part && found.source == CoreProbe::Source::kTakeOver) found.source = CoreProbe::Source::kCopy;
      if (i == probes.public_blocks && !request.is_public && !begins_lineage(probes.lineage, i)) {
        probe_public_siblings(probes, block_tokens, found);
      }
    }
  }
  CoreProbe tail;
  const auto tail_tokens = tokens.subspan(shared * kBlockTokens);
  probe_siblings(find_parent(probes, shared), tail_tokens, rules, tail);
  if (shared == probes.public_blocks && !request.is_public && !begins_lineage(probes.lineage, shared))
    probe_public_siblings(probes, tail_tokens, tail);
  probes.blocks.push_back(tail);
  CoreProbe& last = probes.blocks.back();
  // The last token is computed in any case. (A run of that token alone may be taken over, for its slot.)
  const auto run_max = static_cast<std::uint32_t>(tail_tokens.size() - 1);
  last.run = std::min(last.run, run_max);
  if (last.run == 0 && last.source == CoreProbe::Source::kCopy) last.source = CoreProbe::Source::kNone;
  return probes;
}

// (Of what the index knows it knows all that is before it, but for a lineage whose front may be missing.)
std::uint32_t Prefixes::known_blocks(CoreRequest& request) const {
  const std::vector<ChainKey>& keys = keys_of(request);
  const auto is_known = [this](const ChainKey& key) { return index_.find(key) != kNoBlock; };
  auto from = keys.begin(), to = keys.end();
  // Of a history that goes on all but the last blocks are known, of a new one none is. So the search begins
  // at the end, in growing steps, whose memory is read at once: each of them waits for memory else.
  const std::size_t steps = request.lineage == nullptr ? std::bit_width(keys.size()) : 0;
  for (std::size_t i = 0; i < steps; ++i) index_.prefetch(keys[keys.size() - (std::size_t{1} << i)]);
  for (std::size_t i = 0; i < steps; ++i) {
    const auto place = keys.end() - (std::ptrdiff_t{1} << i);
    if (is_known(*place)) {
      from = place + 1;
      break;
    }
    to = place;
  }
  return static_cast<std::uint32_t>(std::partition_point(from, to, is_known) - keys.begin());
}

bool Prefixes::may_have_beginning(CoreRequest& request, Tier slowest) const {
  const std::uint32_t known = known_blocks(request);
  if (known == 0 || begins_lineage(request.lineage.get(), known)) return true;
  auto tokens = std::span<const TokenId>(request.tokens).subspan(std::size_t{known} * kBlockTokens);
  tokens = tokens.first(std::min<std::size_t>(tokens.size(), kBlockTokens));
  const auto comes = [&](BlockId child) { return transfers_.comes(child, slowest); };
  // (Behind a public block another root's blocks follow.)
  if (known == request.names->public_ones) return true;
  const BlockId node = index_.find(request.names->keys[known - 1]);
  if (index_.match_names(node, tokens, comes).run > 0) return true;
  return has_windows_ && parts_from_others(node);  // it may go on from an earlier place
}

bool Prefixes::lacks_a_group(BlockId id) const {
  const Block& block = index_.block(id);
  if (block.appending) return false;
  bool has_one = false, lacks_one = false;
  for (std::uint32_t group = 0; group < config_.groups.size(); ++group) {
    const std::uint32_t filled = block.filled_in(group);
    if (filled > 0 && filled < kBlockTokens) return false;
    has_one = has_one || filled > 0;
    lacks_one = lacks_one || filled == 0;
  }
  return has_one && lacks_one;
}

// Some block before or at the known one has siblings with names.
bool Prefixes::parts_from_others(BlockId known) const {
  while (index_.block(known).kind != BlockKind::kRoot) {
    known = index_.block(known).parent;
    if (index_.block(known).full_children.size() > 1) return true;
  }
  return false;
}

std::uint32_t Prefixes::first_unknown(const CoreProbes& probes) {
  std::uint32_t number = probes.public_blocks;
  while (number + 1 < probes.blocks.size() && probes.blocks[number].node != kNoBlock) ++number;
  return number;
}

std::optional<CoreBeginning> Prefixes::find_beginning(const CoreRequest& request, const CoreProbes& probes,
                                                      std::uint32_t number, Tier slowest) const {
  const std::size_t last = probes.blocks.size() - 1;
  const CoreProbe& found = probes.blocks[number];
  const BlockId parent = find_parent(probes, number);
  if (found.load || parent == kNoBlock) return std::nullopt;
  auto tokens = std::span<const TokenId>(request.tokens).subspan(std::size_t{number} * kBlockTokens);
  tokens = tokens.first(std::min<std::size_t>(tokens.size(), kBlockTokens));
  const ChildMatch match =
      index_.match_names(parent, tokens, [&](BlockId child) { return transfers_.comes(child, slowest); });
  // The last token is computed in any case.
  const auto most = static_cast<std::uint32_t>(tokens.size() - (number == last ? 1 : 0));
  CoreBeginning beginning{.block = match.child,
                          .key = {},
                          .number = number,
                          .there = found.run,
                          .run = std::min(match.run, most),
                          .computed_from = number * kBlockTokens + found.run};
  if (beginning.run <= beginning.there) return std::nullopt;
  beginning.key = index_.block(match.child).key;
  const CoreProbe probe{.key = {}, .node = match.child};
  beginning.from = transfers_.load_tier(probe);
  beginning.hidden = transfers_.from_hidden(probe);
  return beginning;
}

// What the block hangs from, if that is there.
BlockId Prefixes::find_parent(const CoreProbes& probes, std::size_t block) const {
  if (begins_lineage(probes.lineage, block)) return index_.find(probes.lineage->gate);
  if (block == probes.public_blocks) return index_.find(probes.root);
  return probes.blocks[block - 1].node;
}

const std::vector<ChainKey>& Prefixes::keys_of(CoreRequest& request) const {
  const std::uint32_t shared = (request.length() - 1) / kBlockTokens;
  if (request.names->keys.size() == shared) return request.names->keys;
  CoreProbes probes;
  probe_public(request, probes);
  RequestNames& names = request.names.change();
  if (names.public_ones != probes.public_blocks || names.keys.size() > shared) {
    names.keys.clear();
    names.public_ones = probes.public_blocks;
    for (const CoreProbe& found : probes.blocks) names.keys.push_back(found.key);
  }
  auto i = static_cast<std::uint32_t>(names.keys.size());
  ChainKey key = i > probes.public_blocks ? names.keys.back() : probes.root;
  for (; i < shared; ++i) {
    if (begins_lineage(request.lineage.get(), i)) key = request.lineage->gate;
    key =
        hasher_.child(key, std::span<const TokenId>(request.tokens).subspan(i * kBlockTokens, kBlockTokens));
    names.keys.push_back(key);
  }
  return request.names->keys;
}

void Prefixes::take_keys(CoreRequest& request, ArrivalKeys keys) const {
  LOCI_CHECK(keys.blocks.size() == (request.length() - 1) / kBlockTokens, "a key for each whole block");
  RequestNames& names = request.names.change();
  names.keys = std::move(keys.blocks);
  names.public_ones = keys.public_blocks;
  names.public_chain = std::move(keys.beginning.keys);
  // (What follows a cut is not what followed in the history.)
  if (request.lineage != nullptr && names.public_chain.size() > request.lineage->front_blocks)
    names.public_chain.resize(request.lineage->front_blocks);
}

// The root of the request's first block.
ChainKey Prefixes::first_key(const CoreRequest& request) const {
  const bool in_public = request.is_public || request.prefix->public_blocks > 0;
  return in_public ? hasher_.public_root() : hasher_.root(request.sharing);
}

// The public blocks that the request begins with, and the key of what its own are below. Blocks that were
// public once are passed by: whether their state is still there depends on what others do.
void Prefixes::probe_public(const CoreRequest& request, CoreProbes& probes) const {
  probes.root = request.is_public ? hasher_.public_root() : hasher_.root(request.sharing);
  if (request.is_public || public_.empty()) return;
  const std::span<const TokenId> tokens(request.tokens);
  std::uint32_t shared = (request.length() - 1) / kBlockTokens;
  if (request.lineage) shared = std::min(shared, request.lineage->front_blocks);
  const std::vector<ChainKey>& known = request.names->public_chain;
  ChainKey key = hasher_.public_root();
  while (probes.public_blocks < shared) {
    const std::uint32_t block = probes.public_blocks;
    key = block < known.size() ? known[block]
                               : hasher_.child(key, tokens.subspan(block * kBlockTokens, kBlockTokens));
    if (!is_public_block(key)) break;
    CoreProbe& found = probes.blocks.emplace_back();
    found.key = key;
    found.node = index_.find(key);
    ++probes.public_blocks;
  }
  if (probes.public_blocks > 0) probes.root = hasher_.gate(probes.blocks.back().key, request.sharing);
}

// The first block after the public ones may begin with the first tokens of a public one.
void Prefixes::probe_public_siblings(const CoreProbes& probes, std::span<const TokenId> tokens,
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
BlockPin Prefixes::open_parent(const CoreProbes& probes) {
  if (probes.public_blocks == 0) return index_.open_root(probes.root);
  return index_.open_gate(probes.blocks[probes.public_blocks - 1].node, probes.root);
}

// --- public prefixes ---

void Prefixes::keep(RequestId id, std::uint32_t tokens, std::vector<BlockPin> blocks) {
  Public& prefix = public_[id];
  prefix.tokens = tokens;
  prefix.blocks = std::move(blocks);
  std::vector<ChainKey> keys;
  for (const BlockPin& pin : prefix.blocks) {
    const Block& block = index_.block(pin.block());
    if (block.published == 0) ++public_blocks_;
    if (block.kind == BlockKind::kFull) keys.push_back(block.key);
    index_.publish(pin);
  }
  prefix.keys = std::make_shared<const std::vector<ChainKey>>(std::move(keys));
  tell_chains();
}

void Prefixes::tell_chains() {
  PublicChains chains;
  for (const auto& [id, prefix] : public_) chains.push_back(prefix.keys);
  chains_ = std::make_shared<const PublicChains>(std::move(chains));
}

bool Prefixes::withdraw(RequestId id) {
  const auto found = public_.find(id);
  if (found == public_.end()) return false;
  std::vector<BlockPin>& blocks = found->second.blocks;
  while (!blocks.empty()) {  // the deepest first
    index_.withdraw(blocks.back());
    if (index_.block(blocks.back().block()).published == 0) --public_blocks_;
    blocks.pop_back();
  }
  public_.erase(found);
  tell_chains();
  return true;
}

void Prefixes::visit_pins(const std::function<void(const BlockPin&)>& visit) const {
  for (const auto& [id, prefix] : public_) {
    for (const BlockPin& pin : prefix.blocks) visit(pin);
  }
}

std::vector<PublicPrefix> Prefixes::public_prefixes() const {
  std::vector<PublicPrefix> out;
  for (const auto& [id, prefix] : public_) {
    out.push_back({id, prefix.tokens, static_cast<std::uint32_t>(prefix.blocks.size())});
  }
  return out;
}

void Prefixes::check_invariants() const {
  std::map<BlockId, std::uint32_t> published;
  for (const auto& [id, prefix] : public_) {
    ChainKey key = hasher_.public_root();
    std::size_t whole = 0;
    for (const BlockPin& pin : prefix.blocks) {
      const Block& b = index_.block(pin.block());
      LOCI_CHECK(b.parent == index_.find(key), "invariant 5: a public prefix is a path from the public root");
      if (b.kind == BlockKind::kFull) {
        key = hasher_.child(key, b.tokens);
        LOCI_CHECK(b.key == key && b.filled == kBlockTokens, "invariant 4: public blocks are whole");
        LOCI_CHECK(whole < prefix.keys->size() && (*prefix.keys)[whole++] == key,
                   "invariant 10: what is told of a prefix are its blocks");
      }
      ++published[pin.block()];
    }
  }
  LOCI_CHECK(published.size() == public_blocks_, "invariant 10: public blocks are counted once");
  LOCI_CHECK(chains_->size() == public_.size(), "invariant 10: what is told are the present prefixes");
  for (std::uint32_t i = 0; i < index_.id_bound(); ++i) {
    const auto found = published.find(BlockId(i));
    LOCI_CHECK(index_.block(BlockId(i)).published == (found == published.end() ? 0 : found->second),
               "invariant 2: what is public has its prefix");
  }
}

}  // namespace loci
