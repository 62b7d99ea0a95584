// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/attention_phase.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "loci/base/check.h"

namespace loci::cpu {

AttentionPhase::AttentionPhase(const KernelTable& kernels, ThreadPool& pool, const BlockStorage& blocks,
                               std::uint32_t head_dim)
    : kernels_(kernels),
      state_kernels_(blocks.layout().kernels(kernels)),
      pool_(pool),
      blocks_(blocks),
      head_dim_(head_dim) {
  scratch_.reserve(pool.size() * sizeof(Scratch), "attention");
}

void AttentionPhase::resize(const PassPlan& plan) { unit_results_.reserve(plan.split_bytes(), "attention"); }

void AttentionPhase::take_queries(const AttentionInput& input, std::uint32_t task, Tile& tile) const {
  if (tile.task != task) gather_queries(input, input.plan.tasks()[task], tile);
  tile.task = task;
}

void AttentionPhase::gather_queries(const AttentionInput& input, const AttentionTask& task,
                                    Tile& tile) const {
  std::uint32_t query = 0;
  for (std::uint32_t row = task.row; row < task.row + task.rows; ++row) {
    for (std::uint32_t head = task.head; head < task.head + task.heads; ++head, ++query) {
      std::memcpy(tile.queries + query * kAttentionStride,
                  input.queries + std::size_t{row} * input.stride + std::size_t{head} * head_dim_,
                  head_dim_ * sizeof(float));
    }
  }
  if (blocks_.layout().type() != StateType::kQ8) return;
  const std::uint32_t steps = (head_dim_ + kQuantBlock - 1) / kQuantBlock;
  for (std::uint32_t row = 0; row < query; ++row) {
    float* values = tile.queries + row * kAttentionStride;
    std::fill(values + head_dim_, values + steps * kQuantBlock, 0.0f);
    kernels_.quantize(values, steps, tile.query_tile, query, row);
  }
}

AttentionPartial AttentionPhase::describe(const AttentionTask& task, Scratch& scratch, Tile& tile,
                                          Results& results) const {
  AttentionPartial partial;
  partial.head_dim = head_dim_;
  partial.rows = task.rows * task.heads;
  partial.queries = tile.queries;
  partial.query_tile = tile.query_tile;
  partial.scores = scratch.scores;
  partial.maximum = results.maximum;
  partial.sum = results.sum;
  partial.out = results.out;
  return partial;
}

void AttentionPhase::find_context(const AttentionInput& input, const Unit& unit, Context& context) const {
  const AttentionTask& task = input.plan.tasks()[unit.task];
  const Segment& segment = input.plan.segments()[task.segment];
  const SharedSlots& table = input.pass.spans[segment.span].tables[blocks_.group_of(input.layer)].blocks;
  const std::uint32_t begin = unit.partial * kPartialTokens;
  std::uint32_t query = 0, visible = 0;
  for (std::uint32_t row = 0; row < task.rows; ++row) {
    const std::uint32_t end = task.position + row + 1;  // a token sees itself and those before it
    const std::uint32_t first = first_visible(input.window, end - 1);
    visible = end <= begin ? 0 : std::min(end - begin, kPartialTokens);
    const std::uint32_t hidden = first <= begin ? 0 : std::min(first - begin, visible);
    for (std::uint32_t head = 0; head < task.heads; ++head, ++query) {
      context.hidden[query] = hidden;
      context.visible[query] = visible;
    }
  }
  context.first_block = context.hidden[0] / kTokensPerBlock;
  context.end_block = (visible + kTokensPerBlock - 1) / kTokensPerBlock;
  for (std::uint32_t block = context.first_block; block < context.end_block; ++block) {
    context.blocks[block] =
        blocks_.head(table[unit.partial * kPartialBlocks + block], input.layer, task.kv_head);
  }
  context.unit = unit;
}

void AttentionPhase::compute(const AttentionInput& input, const Unit& unit, const Unit& next, Tile& tile,
                             Scratch& scratch) const {
  Context* context = &scratch.contexts[0];
  Context* ahead = &scratch.contexts[1];
  const bool fetched = ahead->unit == unit || context->unit == unit;
  if (ahead->unit == unit) std::swap(context, ahead);
  if (context->unit != unit) find_context(input, unit, *context);
  AttentionPartial description = describe(input.plan.tasks()[unit.task], scratch, tile, scratch.partial);
  description.hidden = context->hidden;
  description.visible = context->visible;
  description.blocks = context->blocks;
  description.softcap = input.softcap;
  description.fetched = fetched ? 1 : 0;
  if (next != kNothing) {
    find_context(input, next, *ahead);
    description.next = ahead->blocks + ahead->first_block;
    description.next_blocks = ahead->end_block - ahead->first_block;
  }
  state_kernels_.attention_partial(description);
}

void AttentionPhase::keep(const AttentionTask& task, const Scratch& scratch, float* results) const {
  const std::uint32_t queries = task.queries();
  results = std::copy_n(scratch.partial.maximum, queries, results);
  results = std::copy_n(scratch.partial.sum, queries, results);
  for (std::uint32_t query = 0; query < queries; ++query)
    results = std::copy_n(scratch.partial.out + query * kAttentionStride, head_dim_, results);
}

void AttentionPhase::bring(const AttentionTask& task, const float* results, Scratch& scratch) const {
  const std::uint32_t queries = task.queries();
  std::copy_n(results, queries, scratch.partial.maximum);
  std::copy_n(results + queries, queries, scratch.partial.sum);
  const float* out = results + 2 * queries;
  for (std::uint32_t query = 0; query < queries; ++query)
    std::copy_n(out + query * head_dim_, head_dim_, scratch.partial.out + query * kAttentionStride);
}

void AttentionPhase::forget_layer(Scratch& scratch) {
  for (Tile& tile : scratch.tiles) tile.task = kNoTask;
  for (Context& context : scratch.contexts) context.unit = kNothing;
}

void AttentionPhase::forget(const AttentionTask& task, Tile& tile) {
  std::fill_n(tile.state.sum, task.queries(), 0.0f);
}

void AttentionPhase::merge(const AttentionTask& task, Scratch& scratch, Tile& tile) const {
  const AttentionPartial source = describe(task, scratch, tile, scratch.partial);
  const AttentionPartial state = describe(task, scratch, tile, tile.state);
  kernels_.attention_merge(source, state);
}

void AttentionPhase::finish(const AttentionInput& input, const AttentionTask& task, Scratch& scratch,
                            Tile& tile) const {
  const AttentionPartial state = describe(task, scratch, tile, tile.state);
  std::uint32_t query = 0;
  for (std::uint32_t row = task.row; row < task.row + task.rows; ++row) {
    for (std::uint32_t head = task.head; head < task.head + task.heads; ++head) {
      if (input.sinks != nullptr) kernels_.attention_sink(state, query, input.sinks[head]);
      kernels_.attention_finish(state, query++,
                                input.out + std::size_t{row} * input.stride + std::size_t{head} * head_dim_);
    }
  }
}

void AttentionPhase::clear(const AttentionInput& input, const AttentionTask& task) const {
  for (std::uint32_t row = task.row; row < task.row + task.rows; ++row) {
    std::memset(input.out + std::size_t{row} * input.stride + std::size_t{task.head} * head_dim_, 0,
                std::size_t{task.heads} * head_dim_ * sizeof(float));
  }
}

bool AttentionPhase::is_poisoned(const AttentionInput& input, const AttentionTask& task) const {
  return input.poisoned[input.plan.segments()[task.segment].span] != 0;
}

std::uint32_t AttentionPhase::together(const AttentionInput& input, std::uint32_t first,
                                       std::uint32_t end) const {
  if (state_kernels_.widen == nullptr || head_dim_ > kWideHeadDim) return 1;
  const AttentionTask* tasks = input.plan.tasks().data();
  std::uint32_t count = 0;
  while (count < std::min(kWideTasks, end - first)) {
    const AttentionTask& task = tasks[first + count];
    if (task.segment != tasks[first].segment || task.kv_head != tasks[first].kv_head ||
        task.queries() < kernels_.wide_attention_rows)
      break;
    ++count;
  }
  return count < kWideTasksMin ? 1 : count;
}

void AttentionPhase::run_task(const AttentionInput& input, std::uint32_t index, const Unit& after,
                              Scratch& scratch) const {
  const AttentionTask& task = input.plan.tasks()[index];
  Tile& tile = scratch.tiles[0];
  take_queries(input, index, tile);
  forget(task, tile);
  const Unit end = {index, task.partials_end()};
  for (Unit unit = {index, task.partials_begin(input.window)}; unit != end; ++unit.partial) {
    const Unit next = {index, unit.partial + 1};
    compute(input, unit, next == end ? after : next, tile, scratch);
    merge(task, scratch, tile);
  }
  finish(input, task, scratch, tile);
}

void AttentionPhase::widen_rest(const Context& context, Scratch& scratch,
                                std::array<bool, kPartialBlocks>& widened) const {
  const std::uint32_t floats = kTokensPerBlock * head_dim_;  // of a block's keys or values
  for (std::uint32_t block = context.first_block; block < context.end_block; ++block) {
    if (std::exchange(widened[block], true)) continue;
    state_kernels_.widen(context.blocks[block], head_dim_, scratch.wide + block * floats,
                         scratch.wide + (kPartialBlocks + block) * floats);
  }
}

void AttentionPhase::compute_together(const AttentionInput& input, std::uint32_t first, std::uint32_t count,
                                      std::uint32_t partial, Scratch& scratch) const {
  Context& context = scratch.contexts[0];
  Context& ahead = scratch.contexts[1];
  std::array<bool, kPartialBlocks> widened{};
  bool is_first = true;
  std::uint32_t whole = 0;  // so many queries see all of the context
  for (std::uint32_t i = 0; i < count; ++i) {
    const AttentionTask& task = input.plan.tasks()[first + i];
    if (partial < task.partials_begin(input.window) || partial >= task.partials_end()) continue;
    const bool sees_all = input.window == 0 && task.position + 1 >= (partial + 1) * kPartialTokens;
    if (!sees_all || whole < task.queries()) {
      find_context(input, {first + i, partial}, context);
      whole = sees_all ? task.queries() : 0;
    }
    Tile& tile = scratch.tiles[i];
    AttentionPartial description = describe(task, scratch, tile, scratch.partial);
    description.hidden = context.hidden;
    description.visible = context.visible;
    description.blocks = context.blocks;
    description.softcap = input.softcap;
    description.wide = scratch.wide;
    // The first sees all that the others see, but for what its window has left.
    if (is_first && context.hidden[task.queries() - 1] == 0) {
      description.widens = 1;
      description.fetched = ahead.unit == Unit{first + i, partial} ? 1 : 0;
      widened.fill(true);
    } else {
      description.fetched = 1;
      widen_rest(context, scratch, widened);
    }
    // Meanwhile the lines of the next partial are fetched.
    if (is_first && partial + 1 < task.partials_end()) {
      find_context(input, {first + i, partial + 1}, ahead);
      description.next = ahead.blocks + ahead.first_block;
      description.next_blocks = ahead.end_block - ahead.first_block;
    }
    state_kernels_.attention_partial(description);
    merge(task, scratch, tile);
    is_first = false;
  }
}

void AttentionPhase::run_together(const AttentionInput& input, std::uint32_t first, std::uint32_t count,
                                  Scratch& scratch) const {
  const AttentionTask* tasks = input.plan.tasks().data() + first;
  std::uint32_t begin = tasks[0].partials_begin(input.window), end = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    take_queries(input, first + i, scratch.tiles[i]);
    forget(tasks[i], scratch.tiles[i]);
    begin = std::min(begin, tasks[i].partials_begin(input.window));
    end = std::max(end, tasks[i].partials_end());
  }
  for (std::uint32_t partial = begin; partial < end; ++partial)
    compute_together(input, first, count, partial, scratch);
  for (std::uint32_t i = 0; i < count; ++i) finish(input, tasks[i], scratch, scratch.tiles[i]);
  for (Context& context : scratch.contexts) context.unit = kNothing;
}

void AttentionPhase::run(std::uint32_t thread, const AttentionInput& input) {
  const std::uint32_t tasks = input.plan.tasks_below(input.rows);
  if (input.plan.shares(input.window_index).split) return run_split(thread, input, tasks);
  Scratch& scratch = scratch_.as<Scratch>()[thread];
  forget_layer(scratch);
  const auto first_of = [&](std::uint32_t task) {
    return Unit{task, input.plan.tasks()[task].partials_begin(input.window)};
  };
  // The next range is taken before the last task of this one, so that its first blocks are fetched meanwhile
  // (not where tasks are computed together).
  WorkRange range, next;
  bool more = pool_.claim(thread, tasks, range);
  while (more) {
    for (std::uint32_t i = range.begin, count = 1; i < range.end; i += count) {
      count = together(input, i, range.end);
      const bool is_last = i + count == range.end;
      if (is_last) more = pool_.claim(thread, tasks, next);
      const Unit after = !is_last ? first_of(i + count) : more ? first_of(next.begin) : kNothing;
      const AttentionTask& task = input.plan.tasks()[i];
      if (is_poisoned(input, task)) {
        for (std::uint32_t of = i; of < i + count; ++of) clear(input, input.plan.tasks()[of]);
      } else if (count > 1) {
        run_together(input, i, count, scratch);
      } else {
        run_task(input, i, after, scratch);
      }
    }
    range = next;
  }
}

void AttentionPhase::run_split(std::uint32_t thread, const AttentionInput& input, std::uint32_t tasks) {
  const PassPlan& plan = input.plan;
  const AttentionShares& shares = plan.shares(input.window_index);
  Scratch& scratch = scratch_.as<Scratch>()[thread];
  const auto results_of = [&](std::uint32_t task, std::uint32_t unit) {
    const std::uint64_t before =
        shares.first_result[task] + std::uint64_t{unit} * plan.tasks()[task].queries();
    return unit_results_.as<float>() + before * query_result_floats(head_dim_);
  };
  forget_layer(scratch);
  WorkRange range;
  // The next unit of this thread; it is taken one unit ahead, so that its blocks are fetched meanwhile.
  const auto take = [&]() -> const Unit* {
    if (range.begin == range.end && !pool_.claim(thread, shares.first_unit[tasks], range)) return nullptr;
    return &shares.units[range.begin++];
  };
  const Unit* next = take();
  while (const Unit* const unit = next) {
    next = take();
    const AttentionTask& task = plan.tasks()[unit->task];
    if (is_poisoned(input, task)) continue;
    Tile& tile = scratch.tiles[unit->task % kTiles];
    take_queries(input, unit->task, tile);
    compute(input, *unit, next == nullptr ? kNothing : *next, tile, scratch);
    keep(task, scratch, results_of(unit->task, unit->partial - task.partials_begin(input.window)));
  }
  pool_.barrier(thread);
  while (pool_.claim(thread, tasks, range)) {
    for (std::uint32_t i = range.begin; i < range.end; ++i) {
      const AttentionTask& task = plan.tasks()[i];
      if (is_poisoned(input, task)) {
        clear(input, task);
        continue;
      }
      Tile& tile = scratch.tiles[i % kTiles];
      forget(task, tile);
      const std::uint32_t units = shares.first_unit[i + 1] - shares.first_unit[i];
      for (std::uint32_t unit = 0; unit < units; ++unit) {
        bring(task, results_of(i, unit), scratch);
        merge(task, scratch, tile);
      }
      finish(input, task, scratch, tile);
    }
  }
}

}  // namespace loci::cpu
