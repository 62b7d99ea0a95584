// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/attention_phase.h"

#include <algorithm>
#include <cstring>

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

void AttentionPhase::gather_queries(const AttentionInput& input, const AttentionTask& task,
                                    Scratch& scratch) const {
  std::uint32_t query = 0;
  for (std::uint32_t row = task.row; row < task.row + task.rows; ++row) {
    for (std::uint32_t head = task.head; head < task.head + task.heads; ++head, ++query) {
      std::memcpy(scratch.queries + query * kAttentionStride,
                  input.queries + std::size_t{row} * input.stride + std::size_t{head} * head_dim_,
                  head_dim_ * sizeof(float));
    }
  }
  if (blocks_.layout().type() != StateType::kQ8) return;
  const std::uint32_t steps = (head_dim_ + kQuantBlock - 1) / kQuantBlock;
  for (std::uint32_t row = 0; row < query; ++row) {
    float* values = scratch.queries + row * kAttentionStride;
    std::fill(values + head_dim_, values + steps * kQuantBlock, 0.0f);
    kernels_.quantize(values, steps, scratch.query_tile, query, row);
  }
}

AttentionPartial AttentionPhase::describe(const AttentionTask& task, Scratch& scratch,
                                          Results& results) const {
  AttentionPartial partial;
  partial.head_dim = head_dim_;
  partial.rows = task.rows * task.heads;
  partial.queries = scratch.queries;
  partial.query_tile = scratch.query_tile;
  partial.scores = scratch.scores;
  partial.maximum = results.maximum;
  partial.sum = results.sum;
  partial.out = results.out;
  return partial;
}

void AttentionPhase::find_context(const AttentionInput& input, const Unit& unit, Context& context) const {
  const AttentionTask& task = input.plan.tasks()[unit.task];
  const Segment& segment = input.plan.segments()[task.segment];
  const std::vector<SlotId>& table =
      input.pass.spans[segment.span].tables[blocks_.group_of(input.layer)].blocks;
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

void AttentionPhase::compute(const AttentionInput& input, const Unit& unit, const Unit& next,
                             Scratch& scratch, Results& results) const {
  Context* context = &scratch.contexts[0];
  Context* ahead = &scratch.contexts[1];
  const bool fetched = ahead->unit == unit || context->unit == unit;
  if (ahead->unit == unit) std::swap(context, ahead);
  if (context->unit != unit) find_context(input, unit, *context);
  AttentionPartial description = describe(input.plan.tasks()[unit.task], scratch, results);
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

void AttentionPhase::forget_contexts(Scratch& scratch) {
  for (Context& context : scratch.contexts) context.unit = kNothing;
}

void AttentionPhase::forget(const AttentionTask& task, Scratch& scratch) const {
  std::fill_n(scratch.state.sum, task.rows * task.heads, 0.0f);
}

void AttentionPhase::merge(const AttentionTask& task, Results& from, Scratch& scratch) const {
  const AttentionPartial source = describe(task, scratch, from);
  const AttentionPartial state = describe(task, scratch, scratch.state);
  kernels_.attention_merge(source, state);
}

void AttentionPhase::finish(const AttentionInput& input, const AttentionTask& task, Scratch& scratch) const {
  const AttentionPartial state = describe(task, scratch, scratch.state);
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

void AttentionPhase::run(std::uint32_t thread, const AttentionInput& input) {
  const std::uint32_t tasks = input.plan.tasks_below(input.rows);
  if (input.plan.shares(input.window_index).split) return run_split(thread, input, tasks);
  Scratch& scratch = scratch_.as<Scratch>()[thread];
  forget_contexts(scratch);
  WorkRange range;
  while (pool_.claim(thread, tasks, range)) {
    for (std::uint32_t i = range.begin; i < range.end; ++i) {
      const AttentionTask& task = input.plan.tasks()[i];
      if (input.poisoned[input.plan.segments()[task.segment].span]) {
        clear(input, task);
        continue;
      }
      gather_queries(input, task, scratch);
      forget(task, scratch);
      const auto first_of = [&](std::uint32_t of) {
        return Unit{of, input.plan.tasks()[of].partials_begin(input.window)};
      };
      const Unit after = i + 1 < range.end ? first_of(i + 1) : kNothing, end = {i, task.partials_end()};
      for (Unit unit = first_of(i); unit != end; ++unit.partial) {
        const Unit next = {i, unit.partial + 1};
        compute(input, unit, next == end ? after : next, scratch, scratch.partial);
        merge(task, scratch.partial, scratch);
      }
      finish(input, task, scratch);
    }
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
  const auto poisoned = [&](const AttentionTask& task) {
    return input.poisoned[plan.segments()[task.segment].span] != 0;
  };
  forget_contexts(scratch);
  WorkRange range;
  while (pool_.claim(thread, shares.first_unit[tasks], range)) {
    for (std::uint32_t i = range.begin; i < range.end; ++i) {
      const Unit& unit = shares.units[i];
      const AttentionTask& task = plan.tasks()[unit.task];
      if (poisoned(task)) continue;
      gather_queries(input, task, scratch);
      compute(input, unit, i + 1 < range.end ? shares.units[i + 1] : kNothing, scratch, scratch.partial);
      keep(task, scratch, results_of(unit.task, unit.partial - task.partials_begin(input.window)));
    }
  }
  pool_.barrier(thread);
  while (pool_.claim(thread, tasks, range)) {
    for (std::uint32_t i = range.begin; i < range.end; ++i) {
      const AttentionTask& task = plan.tasks()[i];
      if (poisoned(task)) {
        clear(input, task);
        continue;
      }
      forget(task, scratch);
      const std::uint32_t units = shares.first_unit[i + 1] - shares.first_unit[i];
      for (std::uint32_t unit = 0; unit < units; ++unit) {
        bring(task, results_of(i, unit), scratch);
        merge(task, scratch.partial, scratch);
      }
      finish(input, task, scratch);
    }
  }
}

}  // namespace loci::cpu
