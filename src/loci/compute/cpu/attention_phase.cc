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

void AttentionPhase::resize(const PassPlan& plan) {
  unit_results_.reserve(plan.most_units() * sizeof(Results), "attention");
}

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
  partial.hidden = scratch.hidden;
  partial.visible = scratch.visible;
  partial.scores = scratch.scores;
  partial.maximum = results.maximum;
  partial.sum = results.sum;
  partial.out = results.out;
  return partial;
}

void AttentionPhase::compute(const AttentionInput& input, const AttentionTask& task, std::uint32_t partial,
                             Scratch& scratch, Results& results) const {
  constexpr std::uint32_t kBlocks = kPartialTokens / kTokensPerBlock;
  const Segment& segment = input.plan.segments()[task.segment];
  const std::vector<SlotId>& table =
      input.pass.spans[segment.span].tables[blocks_.group_of(input.layer)].blocks;
  const std::uint32_t begin = partial * kPartialTokens;
  std::uint32_t query = 0, visible = 0;
  for (std::uint32_t row = 0; row < task.rows; ++row) {
    const std::uint32_t end = task.position + row + 1;  // a token sees itself and those before it
    const std::uint32_t first = first_visible(input.window, end - 1);
    visible = end <= begin ? 0 : std::min(end - begin, kPartialTokens);
    const std::uint32_t hidden = first <= begin ? 0 : std::min(first - begin, visible);
    for (std::uint32_t head = 0; head < task.heads; ++head, ++query) {
      scratch.hidden[query] = hidden;
      scratch.visible[query] = visible;
    }
  }
  HeadState blocks[kBlocks];
  for (std::uint32_t block = scratch.hidden[0] / kTokensPerBlock; block * kTokensPerBlock < visible;
       ++block) {
    blocks[block] = blocks_.head(table[partial * kBlocks + block], input.layer, task.kv_head);
  }
  AttentionPartial description = describe(task, scratch, results);
  description.blocks = blocks;
  description.softcap = input.softcap;
  state_kernels_.attention_partial(description);
}

void AttentionPhase::forget(const AttentionTask& task, Scratch& scratch) const {
  std::fill_n(scratch.state.sum, task.rows * task.heads, 0.0f);
}

void AttentionPhase::merge(const AttentionTask& task, Results& from, Scratch& scratch) const {
  const AttentionPartial source = describe(task, scratch, from);
  const AttentionPartial state = describe(task, scratch, scratch.state);
  for (std::uint32_t query = 0; query < source.rows; ++query) {
    if (source.sum[query] == 0) continue;  // it saw nothing of this partial
    if (state.sum[query] == 0) {           // nor of those before it
      state.maximum[query] = source.maximum[query];
      state.sum[query] = source.sum[query];
      std::memcpy(state.out + query * kAttentionStride, source.out + query * kAttentionStride,
                  (head_dim_ + 15) / 16 * 16 * sizeof(float));
    } else {
      kernels_.attention_merge(source, state, query);
    }
  }
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
  WorkRange range;
  while (pool_.claim(thread, tasks, range)) {
    for (std::uint32_t i = range.begin; i < range.end; ++i) {
      const AttentionTask& task = input.plan.tasks()[i];
      if (input.poisoned[input.plan.segments()[task.segment].span]) {
        clear(input, task);
        continue;
      }
      gather_queries(input, task, scratch);
      const std::uint32_t begin = task.partials_begin(input.window), end = task.partials_end();
      compute(input, task, begin, scratch, scratch.state);
      for (std::uint32_t partial = begin + 1; partial < end; ++partial) {
        compute(input, task, partial, scratch, scratch.partial);
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
  Results* results = unit_results_.as<Results>();
  const auto poisoned = [&](const AttentionTask& task) {
    return input.poisoned[plan.segments()[task.segment].span] != 0;
  };
  WorkRange range;
  while (pool_.claim(thread, shares.first_unit[tasks], range)) {
    for (std::uint32_t i = range.begin; i < range.end; ++i) {
      const AttentionTask& task = plan.tasks()[shares.units[i].task];
      if (poisoned(task)) continue;
      gather_queries(input, task, scratch);
      compute(input, task, shares.units[i].partial, scratch, results[i]);
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
      for (std::uint32_t unit = shares.first_unit[i]; unit < shares.first_unit[i + 1]; ++unit) {
        merge(task, results[unit], scratch);
      }
      finish(input, task, scratch);
    }
  }
}

}  // namespace loci::cpu
