// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/restores.h"

#include <algorithm>
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

}  // namespace

Restores::Restores(const CoreConfig& config, const CostModel& costs, const BlockIndex& index,
                   const Transfers& transfers, const Prefixes& prefixes, const Places& places,
                   const Windows& windows, const PassTimes& pass_times)
    : config_(config),
      costs_(costs),
      index_(index),
      transfers_(transfers),
      prefixes_(prefixes),
      places_(places),
      windows_(windows),
      pass_times_(pass_times),
      group_count_(static_cast<std::uint32_t>(config.groups.size())),
      rule_(find_restore_rule(config.restore).value()) {}

Tier Restores::slowest_for(const CoreRequest& request) const {
  const Tier slowest = request.question->answered ? transfers_.slowest_readable() : transfers_.slowest_own();
  return request.without_disk ? transfers_.before_disk(slowest) : slowest;
}

Tier Restores::slowest_ahead(const CoreRequest& request) const {
  const Tier slowest = slowest_for(request);
  return transfers_.disk_gives_up() ? transfers_.before_disk(slowest) : slowest;
}

Tier Restores::slowest_wanted(const CoreRequest& request) const {
  if (rule_ == RestoreRule::kRecompute) return Tier::kDevice;
  Tier slowest = request.question->answered ? Tier::kShared : Tier::kDisk;
  if (request.without_disk) slowest = transfers_.before_disk(slowest);
  if (rule_ != RestoreRule::kPensieve) return slowest;
  return index_.has_tier(Tier::kHost) ? std::min(slowest, Tier::kDisk) : Tier::kDevice;
}

bool Restores::is_for_later(const CoreRequest& request, BlockId block) const {
  if (!transfers_.disk_gives_up()) return false;
  return index_.reachable(block, slowest_for(request)) && !index_.reachable(block, slowest_ahead(request));
}

CoreProbes Restores::choose(const CoreRequest& request, const Rules& rules) const {
  CoreProbes probes =
      prefixes_.probe(request, {.slowest = rules.slowest,
                                .originals = !windows_.any(),
                                .tails_may_move = config_.passes_ahead > 0 && rules.in_flight});
  if (windows_.any()) {
    windows_.find_parting(probes);
    if (!rules.copies) drop_copies(probes);
    places_.choose_start(probes, rules.slowest, rules.coming, rules.last_block);
    if (request.is_public) Places::compute_all(probes);
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
  for (const LoadLink link : {LoadLink::kHost, LoadLink::kDisk, LoadLink::kShared})
    problem.links[index_of(tier_of(link))] = transfers_.link(link);
  return problem;
}

// The plan knows one link to the shared tier, but there may be two: to peers, and to a store. If the
// request's blocks come from peers alone, the plan's link is that to the peers. If they come from both, which
// send at the same time, it takes as long as the slower one does.
void Restores::set_shared_link(RestoreProblem& problem, const UsedLinks& used) const {
  const UsedLink &peers = used[index_of(LoadLink::kPeers)], &store = used[index_of(LoadLink::kShared)];
  RestoreLink& shared = problem.links[index_of(Tier::kShared)];
  shared.awaited = peers.awaited || store.awaited;
  if (!peers.any()) {
    // (Where there is a store, it brings layers one by one.)
    if (store.any() && config_.writes_shared) problem.shared_rounds = 0;
    return;
  }
  const RestoreLink of_peers = transfers_.link(LoadLink::kPeers);
  shared.booked = store.any() ? std::max(shared.booked, of_peers.booked) : of_peers.booked;
  shared.latency = store.any() ? std::max(shared.latency, of_peers.latency) : of_peers.latency;
  if (peers.load == 0 || store.load == 0) return;
  const Nanos slower = std::max(peers.load, store.load);
  for (RestorableBlock& block : problem.blocks) {
    if (block.from != Tier::kShared) continue;
    block.load = static_cast<Nanos>(static_cast<__int128>(block.load) * slower /
                                    (static_cast<__int128>(peers.load) + store.load));
  }
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
  UsedLinks used{};
  for (std::uint32_t i = 0; i < probes.blocks.size(); ++i) {
    CoreProbe& found = probes.blocks[i];
    const bool is_priced = found.load && !transfers_.loading(found.node);
    if (!is_priced && is_projected(request, found, i)) ++projected;
    if (found.load) {
      const std::optional<LoadLink> from = transfers_.load_link(found);
      if (transfers_.loading(found.node)) {
        used[index_of(*from)].awaited = problem.links[index_of(tier_of(*from))].awaited = true;
        continue;
      }
      if (!from) continue;  // the device has its original
      if (!transfers_.overdue(*from)) {
        problem.blocks.push_back(restorable(found, i));
        used[index_of(*from)].add(problem.blocks.back().load);
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
  set_shared_link(problem, used);
  add_computed(problem, rows, compute);
  const Nanos projecting = pass_times_.project_block() * projected;
  problem.computed_anyway += projecting;
  problem.first_reading += projecting;
  return problem;
}

// `problem` with what is loaded where the request goes on at `place`, all that a link brings as one block.
RestoreProblem Restores::problem_at(const CoreRequest& request, std::uint32_t place,
                                    const PlaceLoads::Parts& loads, RestoreProblem problem) const {
  UsedLinks used{};
  for (const LoadLink link : kEveryLoadLink) {
    if (loads.awaited[index_of(link)] > 0)
      used[index_of(link)].awaited = problem.links[index_of(tier_of(link))].awaited = true;
    if (loads.bytes[index_of(link)] == 0) continue;
    problem.blocks.push_back(transfers_.restorable(0, link, loads.bytes[index_of(link)]));
    used[index_of(link)].add(problem.blocks.back().load);
  }
  set_shared_link(problem, used);
  const std::uint32_t rows = request.length() - place;
  add_computed(problem, rows, pass_times_.compute(place, rows));
  return problem;
}

// Of places from which nothing is loaded only the last is worth weighing, and none before it.
Restores::WeighedPlaces Restores::places_of(const CoreProbes& probes, const Rules& rules) const {
  WeighedPlaces places{.tokens = {probes.start}, .needs = std::vector<PlaceNeeds>(1), .loads = {}};
  if (std::ranges::none_of(probes.blocks, &CoreProbe::load)) return places;
  std::array<bool, kLoadLinks> overdue{};
  for (const LoadLink link : kEveryLoadLink) overdue[index_of(link)] = transfers_.overdue(link);
  places.loads = PlaceLoads(places_, transfers_, probes);
  places.tokens = places_.all(probes, rules.slowest, rules.coming);
  std::ranges::reverse(places.tokens);
  places.needs.clear();
  for (const std::uint32_t place : places.tokens) {
    PlaceNeeds& needs = places.needs.emplace_back();
    const PlaceLoads::Parts lacks = places.loads.at(place);
    bool loads = false;
    for (const LoadLink link : kEveryLoadLink) {
      const std::size_t tier = index_of(tier_of(link));
      const std::uint64_t bytes = lacks.bytes[index_of(link)];
      needs.bytes[tier] += bytes;
      if (lacks.awaited[index_of(link)] > 0) needs.awaited |= static_cast<std::uint8_t>(1u << tier);
      needs.overdue = needs.overdue || (bytes > 0 && overdue[index_of(link)]);
      loads = loads || bytes > 0;
    }
    if (!loads) break;
  }
  return places;
}

RestoreForecast Restores::plan_place(const CoreRequest& request, CoreProbes& probes, Rules& rules,
                                     const Load& load) const {
  const RestoreProblem beside = problem_beside(load);
  const WeighedPlaces all = places_of(probes, rules);
  std::vector<std::uint32_t> places;
  std::vector<RestoreProblem> problems;  // of the last place first
  for (const std::size_t i : places_to_price(all.needs)) {
    places.push_back(all.tokens[i]);
    problems.push_back(problem_at(request, all.tokens[i], all.loads.at(all.tokens[i]), beside));
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
  if (windows_.any() && !places_.sees_all(probes.start)) return plan_place(request, probes, rules, load);
  const bool mixes = rule_ == RestoreRule::kAuto && comes_over(probes, LoadLink::kPeers) &&
                     comes_over(probes, LoadLink::kShared);
  const CoreProbes found = mixes ? probes : CoreProbes{};
  RestorePlan plan = plan_found(request, probes, load);
  RestoreForecast forecast{plan.rule, plan.times.ready, plan.loading_all.ready, plan.computing_all.ready};
  // One of the two may be too slow to wait for, and the other not.
  for (const LoadLink slow : {LoadLink::kPeers, LoadLink::kShared}) {
    if (!mixes) break;
    CoreProbes without = found;
    for (CoreProbe& block : without.blocks)
      if (comes_over(block, slow)) compute_instead(block);
    const RestorePlan other = plan_found(request, without, load);
    if (other.times.price >= plan.times.price) continue;
    plan = other;
    probes = std::move(without);
    forecast.planned = plan.times.ready;
  }
  count_needs(probes);
  return forecast;
}

RestorePlan Restores::plan_found(const CoreRequest& request, CoreProbes& probes, const Load& load) const {
  const RestoreProblem asked = problem(request, probes, load);
  RestorePlan plan = plan_restore(asked, rule_);
  for (const RestorableBlock& block : asked.blocks) {
    if (!plan.loads(block)) compute_instead(probes.blocks[block.number]);
  }
  return plan;
}

// True: it is not on its way yet, and a load would bring it over that link.
bool Restores::comes_over(const CoreProbe& found, LoadLink link) const {
  return found.load && !transfers_.loading(found.node) && transfers_.load_link(found) == link;
}

bool Restores::comes_over(const CoreProbes& probes, LoadLink link) const {
  return config_.writes_shared && config_.shared_rounds > 0 &&
         std::ranges::any_of(probes.blocks, [&](const CoreProbe& found) { return comes_over(found, link); });
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
  const CoreProbe probe{.key = {}, .node = beginning.block};
  const LoadLink from = transfers_.load_link(probe).value();
  if (rule_ == RestoreRule::kRecompute || transfers_.overdue(from)) return false;
  if (rule_ == RestoreRule::kKv || rule_ == RestoreRule::kHidden) return true;
  if (rule_ == RestoreRule::kPensieve) return beginning.from == Tier::kHost;
  const RestorableBlock block = restorable(probe, beginning.number);
  const RestoreLink link = transfers_.link(from);
  const std::uint32_t end = beginning.number * kBlockTokens + beginning.run;
  const Nanos compute = pass_times_.compute(beginning.computed_from, end - beginning.computed_from);
  return link.booked + link.latency + block.load + block.charge < compute;
}

std::vector<std::uint32_t> Restores::to_preload(const CoreRequest& request, const CoreProbes& probes) const {
  std::array<std::vector<std::uint32_t>, kLoadLinks> blocks;
  std::array<RestorableBlock, kLoadLinks> one{};
  const CoreLineage* lineage = probes.lineage;
  const bool has_front = lineage != nullptr && lineage->front_blocks < probes.blocks.size() &&
                         probes.blocks[lineage->front_blocks - 1].node != kNoBlock;
  for (std::uint32_t i = 0; i < probes.blocks.size(); ++i) {
    const CoreProbe& found = probes.blocks[i];
    if (!found.load || (found.node == kNoBlock && !has_front) || transfers_.loading(found.node)) continue;
    const std::optional<LoadLink> from = transfers_.load_link(found);
    if (!from) continue;
    blocks[index_of(*from)].push_back(i);
    one[index_of(*from)] = transfers_.restorable(found, i);
  }
  std::vector<std::uint32_t> out;
  const Nanos prefill =
      config_.preload == "buffer" ? sources(request, probes, true).sum.predicted_compute : 0;
  for (const LoadLink link : kEveryLoadLink) {
    const std::vector<std::uint32_t>& first = blocks[index_of(link)];
    std::uint64_t count = first.size();
    if (config_.preload == "buffer" && count > 0) {
      // In blocks. The first layer is before all computing (figure 6c).
      const Nanos latency = transfers_.link(link).latency;
      const std::uint64_t layer = (count + config_.layers - 1) / config_.layers;
      const Nanos load = latency + one[index_of(link)].load * static_cast<Nanos>(count);
      count = std::max(layer, read_buffer(count, load, prefill));
    }
    out.insert(out.end(), first.begin(), first.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return out;
}

FoundBlock Restores::source_of(const CoreRequest& request, const CoreProbe& found, std::uint32_t number,
                               std::uint32_t there, std::uint32_t count) const {
  const auto source = [](Tier from, bool hidden, std::uint32_t tokens) {
    return FoundBlock{from, hidden, static_cast<std::uint8_t>(tokens)};
  };
  if (found.load) {
    const Tier tier = transfers_.load_tier(found);
    return source(tier, tier == Tier::kDisk && transfers_.from_hidden(found), kBlockTokens);
  }
  const std::optional<Tier> preloaded =
      there == count ? preloaded_from(request, found, number) : std::nullopt;
  if (preloaded) return source(*preloaded, preloaded == Tier::kDisk && transfers_.from_hidden(found), count);
  const std::optional<CoreBeginning>& beginning = request.beginning->found;
  const bool brought = beginning && found.source == CoreProbe::Source::kCopy && there == found.run &&
                       there > 0 && index_.find(beginning->key) == found.sibling;
  if (brought) return source(beginning->from, beginning->hidden, there);
  return source(Tier::kDevice, false, there);
}

std::uint32_t Restores::late_tokens(const CoreRequest& request, std::uint32_t number,
                                    std::uint32_t there) const {
  const std::optional<CoreBeginning>& beginning = request.beginning->found;
  if (!beginning || beginning->number != number || beginning->run <= there) return 0;
  return index_.find(beginning->key) == kNoBlock ? 0 : beginning->run - there;
}

FoundSources Restores::sources(const CoreRequest& request, const CoreProbes& probes, bool with_copies) const {
  FoundSources out;
  out.blocks.reserve(probes.blocks.size());
  ContextSources& sum = out.sum;
  for (std::uint32_t i = 0; i < probes.blocks.size(); ++i) {
    const CoreProbe& found = probes.blocks[i];
    const bool last = i + 1 == probes.blocks.size();
    const std::uint32_t begin = i * kBlockTokens;
    const std::uint32_t count = last ? request.length() - begin : kBlockTokens;
    const std::uint32_t there = tokens_there(probes, i, with_copies);
    const FoundBlock& from = out.blocks.emplace_back(source_of(request, found, i, there, count));
    sum.of(from.from) += from.tokens;
    if (from.hidden) sum.hidden += from.tokens;
    if (from.tokens == count) continue;
    MissReason reason = last ? MissReason::kNeverSeen : index_.miss_reason(found.node, found.key);
    if (found.too_slow) reason = MissReason::kTooSlow;
    const std::uint32_t late =
        reason == MissReason::kNeverSeen ? late_tokens(request, i, from.tokens) : std::uint32_t{0};
    sum.computed[static_cast<std::size_t>(MissReason::kTooSlow)] += late;
    sum.computed[static_cast<std::size_t>(reason)] += count - from.tokens - late;
    sum.predicted_compute += pass_times_.compute(begin + from.tokens, count - from.tokens);
  }
  return out;
}

}  // namespace loci
