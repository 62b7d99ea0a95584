// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/attention/attention_plan.h"

#include <algorithm>
#include <functional>

#include "loci/base/check.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kUnit = kAttentionDecodePairs;
constexpr std::uint32_t kBlocksPerMultiprocessor = 2;  // of the kernels, that run at a time
constexpr std::uint32_t kGrains = 3;                   // a split gives each of them at most so many pieces
constexpr std::uint32_t kDeterministicUnits = 4;       // times as many partials: fixed splits are many
constexpr std::uint32_t kShortestSteps = 4;            // below it a piece is mostly its begin and end

// In quarters of a decode tile's step (64 keys).
constexpr std::uint64_t kStepCost = 4;
constexpr std::uint64_t kWarpStepCost = 1;    // of a prompt tile, on top, for each 32 pairs
constexpr std::uint64_t kPieceCost = 8;       // begin and end
constexpr std::uint64_t kPartialCost = 4;     // writing a partial
constexpr std::uint64_t kMergeCost = 24;      // one more kernel
constexpr std::uint64_t kGroupsStepCost = 4;  // of attend_warpgroups, which has a multiprocessor for itself

constexpr std::uint32_t divide_up(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint32_t>((a + b - 1) / b);
}

std::uint32_t steps_of(std::uint32_t begin, std::uint32_t end) {
  return divide_up(end, kAttentionTileKeys) - begin / kAttentionTileKeys;
}

std::uint32_t splits_of(std::uint32_t begin, std::uint32_t end) {
  return divide_up(end, kAttentionSplitKeys) - begin / kAttentionSplitKeys;
}

std::uint32_t splits_between(std::uint32_t from, std::uint32_t to) {
  return to / kAttentionSplitKeys - from / kAttentionSplitKeys;
}

// `prompts`: a run may have more pairs of a row and a head than a decode tile.
AttentionLimits limits_of(const AttentionShape& shape, std::uint32_t runs_max, std::uint32_t rows_max,
                          bool prompts) {
  const std::uint64_t ratio = shape.heads / shape.kv_heads;
  const std::uint64_t slots = std::uint64_t{shape.multiprocessors} * kBlocksPerMultiprocessor;
  const std::uint64_t tiles = runs_max + rows_max * ratio / attention_prompt_pairs(shape.head_dim);
  const std::uint64_t groups = runs_max + rows_max * ratio / kUnit;  // of at most 16 pairs
  const bool decodes = ratio <= kAttentionDecodePairs;
  const auto list = [&](bool has_prompts) {
    AttentionLimits::List of;
    of.tasks = static_cast<std::uint32_t>(shape.kv_heads * tiles + kGrains * slots);
    // A piece of a prompt tile has as many units as groups.
    const std::uint64_t pieces = kGrains * slots * (has_prompts ? 4 : 2);
    of.units = static_cast<std::uint32_t>(
        shape.deterministic ? pieces * kDeterministicUnits + shape.kv_heads * groups : pieces);
    // Two units at least are merged.
    of.merges = static_cast<std::uint32_t>(std::min(shape.kv_heads * groups, kGrains * slots));
    return of;
  };
  AttentionLimits limits;
  if (shape.warpgroups && prompts) limits.warpgroups = list(true);
  if (!shape.warpgroups || decodes) limits.others = list(!shape.warpgroups && prompts);
  const std::uint64_t units = std::uint64_t{limits.warpgroups.units} + limits.others.units;
  limits.values_bytes = units * kUnit * shape.head_dim * sizeof(float);
  limits.statistics_bytes = units * kUnit * 2 * sizeof(float);
  return limits;
}

}  // namespace

AttentionLimits attention_limits(const AttentionShape& shape, std::uint32_t runs_max,
                                 std::uint32_t rows_max) {
  const std::uint64_t ratio = shape.heads / shape.kv_heads;
  return limits_of(shape, runs_max, rows_max, rows_max * ratio > kAttentionDecodePairs);
}

AttentionLimits decode_limits(const AttentionShape& shape, std::uint32_t runs_max) {
  return limits_of(shape, runs_max, runs_max, shape.heads / shape.kv_heads > kAttentionDecodePairs);
}

AttentionCounts AttentionPlan::counts() const {
  return {.tasks = static_cast<std::uint32_t>(tasks.size()),
          .warpgroup_tasks = static_cast<std::uint32_t>(warpgroup_tasks.size()),
          .merges = static_cast<std::uint32_t>(merges.size())};
}

AttentionPlanner::AttentionPlanner(const AttentionShape& shape, const AttentionLimits& limits)
    : shape_(shape), limits_(limits), ratio_(shape.heads / shape.kv_heads) {
  LOCI_CHECK(shape.heads % shape.kv_heads == 0, "each key/value head serves as many heads");
}

std::uint32_t AttentionPlanner::lanes() const {
  const std::uint32_t blocks = by_warpgroups_ ? played_heads() : kBlocksPerMultiprocessor;
  return std::max(1u, shape_.multiprocessors * blocks / shape_.kv_heads);
}

std::uint64_t AttentionPlanner::step_cost(const Tile& tile) const {
  const bool prompt = (tile.flags & AttentionTask::kPromptTile) != 0;
  if (by_warpgroups_) return kGroupsStepCost;
  return kStepCost + (prompt ? divide_up(tile.pairs, 32) * kWarpStepCost : 0);
}

void AttentionPlanner::make_tiles(std::span<const AttentionRun> runs) {
  tiles_.clear();
  for (std::uint32_t r = 0; r < runs.size(); ++r) {
    const AttentionRun& run = runs[r];
    LOCI_CHECK(run.rows > 0, "a run has rows");
    const std::uint32_t pairs = run.rows * ratio_;
    const bool prompt = pairs > kAttentionDecodePairs;
    if ((shape_.warpgroups && prompt) != by_warpgroups_) continue;
    const std::uint32_t each = prompt ? attention_prompt_pairs(shape_.head_dim) : kAttentionDecodePairs;
    for (std::uint32_t first = 0; first < pairs; first += each) {
      Tile tile;
      tile.run = r;
      tile.first_pair = first;
      tile.pairs = std::min(each, pairs - first);
      const std::uint32_t position = run.position + first / ratio_;
      const std::uint32_t visible =
          shape_.window == 0 || position < shape_.window ? 0 : position - shape_.window + 1;
      tile.key_begin = visible / kAttentionTileKeys * kAttentionTileKeys;
      tile.key_end = run.position + (first + tile.pairs - 1) / ratio_ + 1;
      tile.flags = prompt ? AttentionTask::kPromptTile : 0;
      tiles_.push_back(tile);
    }
  }
}

void AttentionPlanner::split_tile(std::uint32_t index, std::uint64_t cap) {
  const Tile& tile = tiles_[index];
  const std::uint64_t each = step_cost(tile);
  const std::uint32_t steps = steps_of(tile.key_begin, tile.key_end);
  const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      std::max<std::uint64_t>(kShortestSteps, cap / each + (cap % each != 0 ? 1 : 0)), UINT32_MAX));
  const std::uint32_t splits = splits_of(tile.key_begin, tile.key_end);
  std::uint32_t count = 1;
  if (steps > most) count = divide_up(steps, most);
  if (shape_.deterministic) count = std::min(count, splits);
  for (std::uint32_t i = 0; i < count; ++i) {
    Piece piece;
    piece.tile = index;
    piece.index = i;
    piece.count = count;
    const auto bound = [&](std::uint32_t at) {
      if (at == 0) return tile.key_begin;
      if (at == count) return tile.key_end;
      const auto share = [&](std::uint32_t all) {
        return static_cast<std::uint32_t>(std::uint64_t{all} * at / count);
      };
      if (shape_.deterministic) {
        return (tile.key_begin / kAttentionSplitKeys + share(splits)) * kAttentionSplitKeys;
      }
      return tile.key_begin + share(steps) * kAttentionTileKeys;
    };
    piece.begin = bound(i);
    piece.end = bound(i + 1);
    piece.cost = kPieceCost + steps_of(piece.begin, piece.end) * each + (count > 1 ? kPartialCost : 0);
    pieces_.push_back(piece);
  }
}

std::uint32_t AttentionPlanner::units_of(const Piece& piece) const {
  const std::uint32_t groups = divide_up(tiles_[piece.tile].pairs, kUnit);
  if (!shape_.deterministic) return piece.count > 1 ? groups : 0;
  const std::uint32_t splits = splits_of(piece.begin, piece.end);
  if (piece.count > 1) return groups * splits;
  return splits > 1 ? groups : 0;
}

bool AttentionPlanner::split(std::uint64_t cap) {
  pieces_.clear();
  std::uint64_t units = 0, merges = 0;
  for (std::uint32_t i = 0; i < tiles_.size(); ++i) {
    const std::size_t first = pieces_.size();
    split_tile(i, cap);
    const std::uint64_t count = pieces_.size() - first;
    for (std::size_t piece = first; piece < pieces_.size(); ++piece) units += units_of(pieces_[piece]);
    if (count > 1) merges += divide_up(tiles_[i].pairs, kUnit);
    if (cap != kNoSplit &&
        (pieces_.size() * shape_.kv_heads > limits().tasks || units * shape_.kv_heads > limits().units ||
         merges * shape_.kv_heads > limits().merges)) {
      return false;
    }
  }
  LOCI_CHECK(pieces_.size() * shape_.kv_heads <= limits().tasks && units * shape_.kv_heads <= limits().units,
             "no more runs and rows than the limits are for");
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
    if (a.cost != b.cost) return a.cost > b.cost;
    return a.tile != b.tile ? a.tile < b.tile : a.index < b.index;
  });
  return true;
}

std::uint64_t AttentionPlanner::makespan() {
  std::uint64_t last = 0;
  bool merges = false;
  ends_.assign(lanes(), 0);
  for (const Piece& piece : pieces_) {
    for (std::uint32_t head = 0; head < played_heads(); ++head) {
      std::pop_heap(ends_.begin(), ends_.end(), std::greater<>());
      ends_.back() += piece.cost;
      last = std::max(last, ends_.back());
      std::push_heap(ends_.begin(), ends_.end(), std::greater<>());
    }
    merges |= piece.count > 1;
  }
  return last + (merges ? kMergeCost : 0);
}

void AttentionPlanner::choose() {
  std::uint64_t total = 0, longest = 0;
  for (const Tile& tile : tiles_) {
    const std::uint64_t cost = steps_of(tile.key_begin, tile.key_end) * step_cost(tile);
    total += cost * played_heads();
    longest = std::max(longest, cost);
  }
  const std::uint32_t lanes = this->lanes();
  std::uint64_t best = kNoSplit;
  split(best);
  std::uint64_t least = makespan();
  // Pieces of a lane's share, a half and a third of it; twice a share where the others exceed a limit. Blocks
  // that have a multiprocessor for themselves end more unevenly, so more is tried for them.
  const std::uint64_t most = (by_warpgroups_ ? 4 : 2) * kGrains;
  for (std::uint64_t halves = 1; halves <= most; halves += halves == 1 || by_warpgroups_ ? 1 : 2) {
    const std::uint64_t cap = divide_up(2 * total, lanes * halves);
    if (cap >= longest || !split(cap)) continue;
    const std::uint64_t span = makespan();
    if (span < least) {
      least = span;
      best = cap;
    }
  }
  split(best);
}

void AttentionPlanner::write(AttentionPlan& plan) const {
  std::vector<AttentionTask>& tasks = by_warpgroups_ ? plan.warpgroup_tasks : plan.tasks;
  // Of each tile: units of one key/value head, and the first of them all.
  std::vector<std::uint32_t> units(tiles_.size()), first(tiles_.size());
  for (const Piece& piece : pieces_) units[piece.tile] += units_of(piece);
  for (std::uint32_t i = 0; i < tiles_.size(); ++i) {
    first[i] = plan.units;
    plan.units += units[i] * shape_.kv_heads;
  }
  for (const Piece& piece : pieces_) {
    const Tile& tile = tiles_[piece.tile];
    const std::uint32_t groups = divide_up(tile.pairs, kUnit);
    const std::uint32_t before =
        shape_.deterministic ? splits_between(tile.key_begin, piece.begin) : piece.index;
    plan.prompt_tiles |= !by_warpgroups_ && (tile.flags & AttentionTask::kPromptTile) != 0;
    for (std::uint32_t head = 0; head < shape_.kv_heads; ++head) {
      const std::uint32_t base = first[piece.tile] + head * units[piece.tile];
      tasks.push_back({tile.run, tile.first_pair, tile.pairs, head, piece.begin, piece.end,
                       base + before * groups, tile.flags | (piece.count == 1 ? AttentionTask::kWhole : 0)});
      if (piece.index > 0 || piece.count == 1) continue;
      for (std::uint32_t group = 0; group < groups; ++group) {
        plan.merges.push_back({tile.run, tile.first_pair + group * kUnit,
                               std::min(kUnit, tile.pairs - group * kUnit), head, base + group,
                               units[piece.tile] / groups, groups});
      }
    }
  }
}

void AttentionPlanner::plan(std::span<const AttentionRun> runs, AttentionPlan& plan) {
  plan.warpgroup_tasks.clear();
  plan.tasks.clear();
  plan.merges.clear();
  plan.units = 0;
  plan.prompt_tiles = false;
  for (const bool warpgroups : {true, false}) {
    by_warpgroups_ = warpgroups;
    make_tiles(runs);
    if (tiles_.empty()) continue;
    choose();
    write(plan);
  }
}

}  // namespace loci::cuda
