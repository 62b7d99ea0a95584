// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/restores.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "loci/policy/lookahead.h"

namespace loci {
namespace {

// Siblings' state cannot be held while it is copied.
void drop_copies(CoreProbes& probes) {
  for (CoreProbe& found : probes.blocks) {
    if (found.source == CoreProbe::Source::kCopy) found.source = CoreProbe::Source::kNone;
  }
}

// It is computed, though a tier has it.
void compute_instead(CoreProbe& found) {
  found.load = false;
  found.too_slow = found.instead = true;
  found.original = kNoBlock;
}

// In which tokens' worth of time is counted.
constexpr std::uint64_t kTokenParts = 1024;

// Of so long each, rounded up; no more than a large context's.
constexpr std::uint64_t parts_of(Nanos time, Nanos part) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 45;
  return std::min(kMost, static_cast<std::uint64_t>(std::max<Nanos>(0, time) / part) + 1);
}

// Of loading the block, and until its link begins, in parts of the time of one of its tokens.
std::pair<std::uint64_t, std::uint64_t> load_parts(const RestorableBlock& block, const RestoreLink& link) {
  const Nanos part = std::max<Nanos>(1, block.compute / (kBlockTokens * kTokenParts));
  return {parts_of(block.load + block.charge, part), parts_of(link.booked + link.latency, part)};
}

}  // namespace

Restores::Restores(const CoreConfig& config, const CostModel& costs, const BlockIndex& index,
                   const Transfers& transfers, const Prefixes& prefixes, const Windows& windows,
                   const PassTimes& pass_times)
    : config_(config),
      costs_(costs),
      index_(index),
      transfers_(transfers),
      prefixes_(prefixes),
      windows_(windows),
      pass_times_(pass_times),
      group_count_(static_cast<std::uint32_t>(config.groups.size())),
      rule_(find_restore_rule(config.restore).value()) {
  for (std::uint32_t group = 0; group < group_count_; ++group)
    if (!windowed(group)) seeing_all_ |= static_cast<GroupSet>(1u << group);
}

Tier Restores::slowest_for(const CoreRequest& request) const {
  const Tier slowest = request.question->answered ? transfers_.slowest_readable() : transfers_.slowest_own();
  return request.without_disk ? without_disk(slowest) : slowest;
}

Tier Restores::slowest_ahead(const CoreRequest& request) const {
  const Tier slowest = slowest_for(request);
  return transfers_.disk_gives_up() ? without_disk(slowest) : slowest;
}

bool Restores::is_for_later(const CoreRequest& request, BlockId block) const {
  if (!transfers_.disk_gives_up()) return false;
  return index_.reachable(block, slowest_for(request)) && !index_.reachable(block, slowest_ahead(request));
}

Tier Restores::without_disk(Tier slowest) const {
  if (slowest < Tier::kDisk) return slowest;
  return index_.has_tier(Tier::kHost) ? Tier::kHost : Tier::kDevice;
}

CoreProbes Restores::choose(const CoreRequest& request, const Rules& rules) const {
  CoreProbes probes =
      prefixes_.probe(request, {.slowest = rules.slowest,
                                .originals = !windows_.any(),
                                .tails_may_move = config_.passes_ahead > 0 && rules.in_flight});
  if (windows_.any()) {
    windows_.find_parting(probes);
    if (!rules.copies) drop_copies(probes);
    windows_.choose_start(probes, rules.slowest, rules.coming, rules.last_block);
    if (request.is_public) windows_.compute_all(probes);
    windows_.promise(request, probes);
  }
  count_needs(probes);
  return probes;
}

void Restores::count_needs(CoreProbes& probes) const {
  probes.slots = probes.pins = probes.copy_pins = {};
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (windowed(group)) continue;
    for (const CoreProbe& found : probes.blocks) {
      const Block* node = found.node == kNoBlock ? nullptr : &index_.block(found.node);
      const Block* sibling =
          found.source == CoreProbe::Source::kNone ? nullptr : &index_.block(found.sibling);
      if (node != nullptr && node->parts[group]) {
        if (node->parts[group]->evictable()) ++probes.pins[group];
      } else if (found.source == CoreProbe::Source::kTakeOver) {
        ++probes.pins[group];
      } else {
        ++probes.slots[group];
      }
      if (found.source == CoreProbe::Source::kCopy && sibling->parts[group]->evictable()) {
        ++probes.copy_pins[group];
      }
      if (found.original != kNoBlock) {
        const auto& part = index_.block(found.original).parts[group];
        if (part && part->evictable()) ++probes.pins[group];
      }
    }
  }
}

void Restores::drop_original(CoreProbes& probes, CoreProbe& found) const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (windowed(group)) continue;
    const auto& part = index_.block(found.original).parts[group];
    if (part && part->evictable()) --probes.pins[group];
  }
  found.original = kNoBlock;
  found.load = false;
}

// Tokens of the block whose state is on the device, or will be copied there.
std::uint32_t Restores::tokens_there(const CoreProbes& probes, std::uint32_t block, bool with_copies) const {
  const CoreProbe& found = probes.blocks[block];
  const std::uint32_t begin = block * kBlockTokens;
  if (windows_.any() && !found.instead)
    return probes.start <= begin ? 0 : std::min(kBlockTokens, probes.start - begin);
  if (found.source == CoreProbe::Source::kTakeOver) return found.run;
  if (found.source == CoreProbe::Source::kCopy && with_copies) return found.run;
  return found.node == kNoBlock ? 0 : index_.block(found.node).filled;
}

RestorableBlock Restores::restorable(const CoreProbe& found, std::uint32_t number) const {
  RestorableBlock block = transfers_.restorable(found, number);
  if (block.only_hidden) block.charge += pass_times_.project_block();
  return block;
}

// Of nothing yet that is loaded or computed.
RestoreProblem Restores::problem_beside(const Load& load) const {
  // What running requests' prompts still ask of the processor, but for their attention.
  const auto booked = static_cast<Nanos>(std::min<std::uint64_t>(load.prompt_tokens, UINT32_MAX));
  RestoreProblem problem{.compute_booked = booked == 0 ? 0 : pass_times_.compute(0, 1) * booked,
                         .layers = config_.layers,
                         .shared_rounds = config_.shared_rounds};
  problem.knows_projecting = costs_.project_block() > 0;
  problem.others = load.others;
  for (const Tier tier : {Tier::kHost, Tier::kDisk, Tier::kShared})
    problem.links[LinkTimes::index_of(tier)] = transfers_.link(tier);
  return problem;
}

// What is computed in any case.
void Restores::add_computed(RestoreProblem& problem, std::uint64_t rows, Nanos compute) const {
  problem.computed_anyway = std::max(compute, pass_times_.predict({PassKind::kPrompts, {.rows = 1}}));
  const std::uint64_t passes = (rows + config_.max_batch_tokens - 1) / config_.max_batch_tokens;
  problem.first_reading = problem.computed_anyway / static_cast<Nanos>(std::max<std::uint64_t>(passes, 1));
}

RestoreProblem Restores::problem(const CoreRequest& request, CoreProbes& probes, const Load& load) const {
  RestoreProblem problem = problem_beside(load);
  problem.blocks.reserve(probes.blocks.size());
  std::uint64_t rows = 0;
  Nanos compute = 0;
  std::uint32_t projected = 0;  // blocks
  for (std::uint32_t i = 0; i < probes.blocks.size(); ++i) {
    CoreProbe& found = probes.blocks[i];
    const bool is_priced = found.load && !transfers_.loading(found.node);
    if (!is_priced && is_projected(request, found, i)) ++projected;
    if (found.load) {
      const Tier from = transfers_.load_tier(found);
      if (transfers_.loading(found.node)) problem.links[LinkTimes::index_of(from)].awaited = true;
      if (from == Tier::kDevice || transfers_.loading(found.node)) continue;
      if (!transfers_.overdue(from)) {
        problem.blocks.push_back(restorable(found, i));
        problem.blocks.back().compute = pass_times_.compute(i * kBlockTokens, kBlockTokens);
        continue;
      }
      compute_instead(found);
    }
    const std::uint32_t begin = i * kBlockTokens;
    const std::uint32_t there = tokens_there(probes, i, true);
    const std::uint32_t count = std::min(kBlockTokens, request.length() - begin);
    if (count <= there) continue;
    rows += count - there;
    compute += pass_times_.compute(begin + there, count - there);
  }
  add_computed(problem, rows, compute);
  const Nanos projecting = pass_times_.project_block() * projected;
  problem.computed_anyway += projecting;
  problem.first_reading += projecting;
  return problem;
}

std::vector<Restores::Lacking> Restores::lacking(const CoreProbes& probes, std::uint32_t group) const {
  std::vector<Lacking> sums(1);
  sums.reserve(probes.blocks.size() + 1);
  for (const CoreProbe& found : probes.blocks) {
    Lacking sum = sums.back();
    const auto part = found.node == kNoBlock ? std::nullopt : transfers_.part_to_load(found.node, group);
    if (part) {
      sum.bytes[LinkTimes::index_of(part->from)] += part->bytes;
      sum.awaited[LinkTimes::index_of(part->from)] += part->bytes == 0 ? 1 : 0;
    }
    sums.push_back(sum);
  }
  return sums;
}

// `lacking`: by group; empty where nothing is missing.
PlaceNeeds Restores::needs_at(std::uint32_t place, const std::vector<std::vector<Lacking>>& lacking) const {
  PlaceNeeds needs;
  for (std::size_t group = 0; group < lacking.size(); ++group) {
    const std::uint32_t first = first_visible(config_.groups[group].window, place) / kBlockTokens;
    const Lacking &end = lacking[group][place / kBlockTokens], &begin = lacking[group][first];
    for (std::size_t tier = 1; tier < kTiers; ++tier) {
      needs.bytes[tier] += end.bytes[tier] - begin.bytes[tier];
      if (end.awaited[tier] > begin.awaited[tier]) needs.awaited |= static_cast<std::uint8_t>(1u << tier);
    }
  }
  return needs;
}

// `problem` with what is loaded where the request goes on at `place`, all that a tier brings as one block.
RestoreProblem Restores::problem_at(const CoreRequest& request, std::uint32_t place, const PlaceNeeds& needs,
                                    RestoreProblem problem) const {
  for (std::size_t tier = 1; tier < kTiers; ++tier) {
    if ((needs.awaited >> tier & 1) != 0) problem.links[tier].awaited = true;
    if (needs.bytes[tier] > 0)
      problem.blocks.push_back(transfers_.restorable(0, static_cast<Tier>(tier), needs.bytes[tier]));
  }
  const std::uint32_t rows = request.length() - place;
  add_computed(problem, rows, pass_times_.compute(place, rows));
  return problem;
}

// Of places from which nothing is loaded only the last is worth weighing, and none before it.
Restores::Places Restores::places_of(const CoreProbes& probes, const Rules& rules) const {
  Places places{.tokens = {probes.start}, .needs = std::vector<PlaceNeeds>(1)};
  if (std::ranges::none_of(probes.blocks, &CoreProbe::load)) return places;
  std::array<bool, kTiers> overdue{};
  for (std::size_t tier = 1; tier < kTiers; ++tier)
    overdue[tier] = transfers_.overdue(static_cast<Tier>(tier));
  std::vector<std::vector<Lacking>> lacks;
  for (std::uint32_t group = 0; group < group_count_; ++group) lacks.push_back(lacking(probes, group));
  places.tokens = windows_.places(probes, rules.slowest, rules.coming);
  std::ranges::reverse(places.tokens);
  places.needs.clear();
  for (const std::uint32_t place : places.tokens) {
    PlaceNeeds& needs = places.needs.emplace_back(needs_at(place, lacks));
    bool loads = false;
    for (std::size_t tier = 1; tier < kTiers; ++tier) {
      loads = loads || needs.bytes[tier] > 0;
      needs.overdue = needs.overdue || (needs.bytes[tier] > 0 && overdue[tier]);
    }
    if (!loads) break;
  }
  return places;
}

RestoreForecast Restores::plan_place(const CoreRequest& request, CoreProbes& probes, Rules& rules,
                                     const Load& load) const {
  const RestoreProblem beside = problem_beside(load);
  const Places all = places_of(probes, rules);
  std::vector<std::uint32_t> places;
  std::vector<RestoreProblem> problems;  // of the last place first
  for (const std::size_t i : places_to_price(all.needs)) {
    places.push_back(all.tokens[i]);
    problems.push_back(problem_at(request, all.tokens[i], all.needs[i], beside));
  }
  const PlaceChoice choice = choose_place(problems, rule_);
  const std::uint32_t chosen = places[choice.number] / kBlockTokens, last = probes.start / kBlockTokens;
  if (chosen < last) {
    rules.last_block = chosen;
    probes = choose(request, rules);
    for (std::uint32_t i = probes.start / kBlockTokens; i < last; ++i) probes.blocks[i].too_slow = true;
  }
  return {rule_, choice.times.ready, choice.loading_all.ready, choice.computing_all.ready};
}

// True: it comes as hidden states, or was loaded ahead so, and its first pass projects it.
bool Restores::is_projected(const CoreRequest& request, const CoreProbe& found, std::uint32_t number) const {
  if (!transfers_.from_hidden(found)) return false;
  const std::optional<Tier> from =
      found.load ? transfers_.load_tier_now(found) : preloaded_from(request, found, number);
  return from == Tier::kDisk;
}

CoreRequest::ToProject Restores::to_project(const CoreRequest& request, const CoreProbes& probes) const {
  CoreRequest::ToProject found;
  if (config_.hidden.disk_blocks == 0) return found;
  for (auto i = static_cast<std::uint32_t>(probes.blocks.size()); i-- > 0;) {
    if (is_projected(request, probes.blocks[i], i)) found = {found.blocks + 1, i};
  }
  return found;
}

// The tier from which the request's block `number` was loaded ahead, if it was.
std::optional<Tier> Restores::preloaded_from(const CoreRequest& request, const CoreProbe& found,
                                             std::uint32_t number) const {
  const std::vector<RequestPreload::Loaded>& blocks = request.preload->blocks;
  if (found.load || number >= blocks.size() || !(blocks[number].key == found.key)) return std::nullopt;
  return blocks[number].from;
}

RestoreForecast Restores::plan(const CoreRequest& request, CoreProbes& probes, Rules& rules,
                               const Load& load) const {
  if (windows_.any() && !windows_.sees_all(probes.start)) return plan_place(request, probes, rules, load);
  const RestoreProblem asked = problem(request, probes, load);
  const RestorePlan plan = plan_restore(asked, rule_);
  for (const RestorableBlock& block : asked.blocks) {
    if (!plan.loads(block)) compute_instead(probes.blocks[block.number]);
  }
  count_needs(probes);
  return {plan.rule, plan.times.ready, plan.loading_all.ready, plan.computing_all.ready};
}

CoreProbes Restores::without_copies(const CoreRequest& request, const CoreProbes& planned,
                                    const Rules& rules) const {
  Rules without = rules;
  without.copies = false;
  CoreProbes probes = choose(request, without);
  for (std::size_t i = 0; i < probes.blocks.size(); ++i) {
    if (planned.blocks[i].instead) compute_instead(probes.blocks[i]);
    probes.blocks[i].too_slow |= planned.blocks[i].too_slow;
  }
  return probes;
}

bool Restores::worth_loading(const CoreBeginning& beginning) const {
  if (rule_ == RestoreRule::kRecompute || transfers_.overdue(beginning.from)) return false;
  if (rule_ == RestoreRule::kKv || rule_ == RestoreRule::kHidden) return true;
  if (rule_ == RestoreRule::kPensieve) return beginning.from == Tier::kHost;
  const CoreProbe probe{.key = {}, .node = beginning.block};
  const RestorableBlock block = restorable(probe, beginning.number);
  const RestoreLink link = transfers_.link(beginning.from);
  const std::uint32_t end = beginning.number * kBlockTokens + beginning.run;
  const Nanos compute = pass_times_.compute(beginning.computed_from, end - beginning.computed_from);
  return link.booked + link.latency + block.load + block.charge < compute;
}

Tier Restores::slowest_later() const {
  if (rule_ == RestoreRule::kRecompute) return Tier::kDevice;
  const bool disk =
      rule_ != RestoreRule::kPensieve && !transfers_.disk_gives_up() && !transfers_.overdue(Tier::kDisk);
  const Tier slowest = disk ? transfers_.slowest_own() : without_disk(transfers_.slowest_own());
  return slowest == Tier::kHost && transfers_.overdue(Tier::kHost) ? Tier::kDevice : slowest;
}

// (What is public stays on the device.)
std::optional<Restores::LaterLoad> Restores::load_later(const CoreRequest& request, std::uint32_t number,
                                                        GroupSet groups, Tier slowest) const {
  const BlockId id = request.blocks[number].block();
  if (index_.block(id).published > 0 || groups == 0) return LaterLoad{};
  std::optional<RestorableBlock> block = transfers_.restorable_later(id, number, slowest, groups);
  // What its next token sees in groups with a window is saved when it is suspended.
  const Tier saved_to = index_.has_tier(Tier::kHost) ? Tier::kHost : Tier::kDisk;
  if (!block && std::has_single_bit(groups) && config_.save != "off" && config_.reuse &&
      saved_to <= slowest) {
    const auto group = static_cast<std::uint32_t>(std::countr_zero(groups));
    if (windowed(group) && request.blocks[number].holds(group))
      block = transfers_.restorable(number, saved_to, config_.groups[group].block_bytes);
  }
  if (!block) return std::nullopt;
  block->compute = pass_times_.compute(number * kBlockTokens, kBlockTokens);
  if (block->only_hidden) block->charge += pass_times_.project_block();
  const auto [parts, link_parts] = load_parts(*block, transfers_.link(block->from));
  return LaterLoad{.from = block->from, .parts = parts, .link_parts = link_parts};
}

std::uint64_t Restores::tokens_to_restore(const CoreRequest& request) const {
  const Tier slowest = slowest_later();
  if (windows_.any() && !windows_.sees_all(request.length())) return tokens_behind_windows(request, slowest);
  const std::size_t blocks = request.blocks.size();
  const std::size_t stride = std::max<std::size_t>(1, (blocks + kBlocksAsked - 1) / kBlocksAsked);
  std::uint64_t loaded = 0, cost = 0;  // tokens, and parts of tokens
  LinksWaited waited{};
  for (std::size_t i = 0; i < blocks; i += stride) {
    const std::uint64_t stands_for = std::min(stride, blocks - i);
    const auto load = load_later(request, static_cast<std::uint32_t>(i), kEveryGroup, slowest);
    if (!load || load->parts >= kBlockTokens * kTokenParts) continue;  // computing it is as fast
    loaded += stands_for * kBlockTokens;
    cost += load->cost(stands_for, waited);
  }
  loaded = std::min<std::uint64_t>(loaded, request.length());
  return request.length() - loaded + std::min(loaded, (cost + kTokenParts - 1) / kTokenParts);
}

// It would go on from the place that costs least: all before it is loaded that layers see there, and all
// behind it is computed.
std::uint64_t Restores::tokens_behind_windows(const CoreRequest& request, Tier slowest) const {
  const std::size_t blocks = request.blocks.size();
  const std::size_t stride = std::max<std::size_t>(1, (blocks + kBlocksAsked - 1) / kBlocksAsked);
  const std::uint64_t length = request.length();
  std::uint64_t least = length * kTokenParts, before = 0;
  LinksWaited waited{};
  for (std::size_t i = 0; i < blocks; i += stride) {
    const auto load = load_later(request, static_cast<std::uint32_t>(i), seeing_all_, slowest);
    if (!load) break;  // there is no place behind it
    const auto end = static_cast<std::uint32_t>(std::min(i + stride, blocks));
    before += load->cost(end - i, waited);
    const std::uint64_t place = std::min<std::uint64_t>(std::uint64_t{end} * kBlockTokens, length);
    const std::uint64_t cost = before + (length - place) * kTokenParts;
    if (cost >= least) continue;
    if (const auto windows = window_cost(request, end, slowest, waited))
      least = std::min(least, cost + *windows);
  }
  return (least + kTokenParts - 1) / kTokenParts;
}

// Of loading what windows see before block `end`: of many blocks some stand for the others.
std::optional<std::uint64_t> Restores::window_cost(const CoreRequest& request, std::uint32_t end,
                                                   Tier slowest, LinksWaited waited) const {
  std::uint64_t cost = 0;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group)) continue;
    const std::uint32_t first =
        first_visible(config_.groups[group].window, end * kBlockTokens) / kBlockTokens;
    const std::uint32_t stride = (end - first + kWindowBlocksAsked - 1) / kWindowBlocksAsked;
    for (std::uint32_t i = end; i > first; i -= std::min(stride, i - first)) {
      const auto load = load_later(request, i - 1, static_cast<GroupSet>(1u << group), slowest);
      if (!load) return std::nullopt;
      cost += load->cost(std::min(stride, i - first), waited);
    }
  }
  return cost;
}

std::vector<std::uint32_t> Restores::to_preload(const CoreRequest& request, const CoreProbes& probes) const {
  std::array<std::vector<std::uint32_t>, kTiers> blocks;
  std::array<RestorableBlock, kTiers> one{};
  const CoreLineage* lineage = probes.lineage;
  const bool has_front = lineage != nullptr && lineage->front_blocks < probes.blocks.size() &&
                         probes.blocks[lineage->front_blocks - 1].node != kNoBlock;
  for (std::uint32_t i = 0; i < probes.blocks.size(); ++i) {
    const CoreProbe& found = probes.blocks[i];
    if (!found.load || (found.node == kNoBlock && !has_front) || transfers_.loading(found.node)) continue;
    const auto from = static_cast<std::size_t>(transfers_.load_tier(found));
    blocks[from].push_back(i);
    one[from] = transfers_.restorable(found, i);
  }
  std::vector<std::uint32_t> out;
  const Nanos prefill = config_.preload == "buffer" ? sources(request, probes, true).predicted_compute : 0;
  for (std::size_t tier = 1; tier < kTiers; ++tier) {
    std::uint64_t count = blocks[tier].size();
    if (config_.preload == "buffer" && count > 0) {
      // In blocks. The first layer is before all computing (figure 6c).
      const Nanos latency = transfers_.link(static_cast<Tier>(tier)).latency;
      const std::uint64_t layer = (count + config_.layers - 1) / config_.layers;
      const Nanos load = latency + one[tier].load * static_cast<Nanos>(count);
      count = std::max(layer, read_buffer(count, load, prefill));
    }
    out.insert(out.end(), blocks[tier].begin(), blocks[tier].begin() + static_cast<std::ptrdiff_t>(count));
  }
  return out;
}

ContextSources Restores::sources(const CoreRequest& request, const CoreProbes& probes,
                                 bool with_copies) const {
  ContextSources from;
  for (std::uint32_t i = 0; i < probes.blocks.size(); ++i) {
    const CoreProbe& found = probes.blocks[i];
    const bool last = i + 1 == probes.blocks.size();
    const std::uint32_t begin = i * kBlockTokens;
    const std::uint32_t count = last ? request.length() - begin : kBlockTokens;
    const std::uint32_t there = tokens_there(probes, i, with_copies);
    if (found.load) {
      const Tier tier = transfers_.load_tier(found);
      from.of(tier) += kBlockTokens;
      if (tier == Tier::kDisk && transfers_.from_hidden(found)) from.hidden += kBlockTokens;
      continue;
    }
    const std::optional<Tier> preloaded =
        !last && there == count ? preloaded_from(request, found, i) : std::nullopt;
    if (preloaded) {
      from.of(*preloaded) += count;
      if (preloaded == Tier::kDisk && transfers_.from_hidden(found)) from.hidden += count;
      continue;
    }
    const bool brought = request.beginning->found && found.source == CoreProbe::Source::kCopy &&
                         there == found.run && there > 0 &&
                         index_.find(request.beginning->found->key) == found.sibling;
    from.of(brought ? request.beginning->found->from : Tier::kDevice) += there;
    if (brought && request.beginning->found->hidden) from.hidden += there;
    if (there == count) continue;
    MissReason reason = last ? MissReason::kNeverSeen : index_.miss_reason(found.node, found.key);
    if (found.too_slow) reason = MissReason::kTooSlow;
    from.computed[static_cast<std::size_t>(reason)] += count - there;
    from.predicted_compute += pass_times_.compute(begin + there, count - there);
  }
  return from;
}

}  // namespace loci
