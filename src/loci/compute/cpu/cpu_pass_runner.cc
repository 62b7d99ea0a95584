// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/cpu_pass_runner.h"

#include <algorithm>
#include <numbers>

#include "loci/base/check.h"

namespace loci::cpu {

namespace {

AttentionShape attention_shape(const ModelSpec& spec, const KernelTable& kernels) {
  AttentionShape shape{spec.heads, spec.kv_heads, kernels.attention_rows, {}};
  for (const LayerSpec& layer : spec.layers) {
    if (std::find(shape.windows.begin(), shape.windows.end(), layer.window) == shape.windows.end())
      shape.windows.push_back(layer.window);
  }
  return shape;
}

}  // namespace

CpuPassRunner::CpuPassRunner(const ModelSpec& spec, const CpuWeights& weights, const KernelTable& kernels,
                             ThreadPool& pool, BlockStorage& blocks, const HiddenProjector& projector)
    : spec_(spec),
      weights_(weights),
      kernels_(kernels),
      pool_(pool),
      blocks_(blocks),
      projector_(projector),
      attention_(kernels, pool, blocks, spec.head_dim),
      shape_(attention_shape(spec, kernels)),
      hidden_stride_(padded_to_lanes(spec.hidden)),
      query_width_(spec.heads * spec.head_dim),
      query_stride_(padded_to_lanes(spec.heads * spec.head_dim)),
      query_factor_(spec.attention_softcap == 0 ? spec.attention_scale * std::numbers::log2e_v<float>
                                                : spec.attention_scale / spec.attention_softcap),
      softcap_(spec.attention_softcap * std::numbers::log2e_v<float>),
      activation_(static_cast<std::size_t>(spec.activation)),
      attention_input_(spec.hidden, weights.qkv_input),
      attention_output_input_(query_width_, weights.attention_output_input),
      ffn_input_(spec.hidden, weights.ffn_input),
      down_input_(weights.ffn_width, weights.down_input),
      output_input_(spec.hidden, weights.output_input),
      router_input_(spec.hidden, weights.router_input),
      expert_input_(spec.hidden, weights.expert_input),
      expert_down_(weights.expert_width, weights.expert_down_input),
      hidden_input_(spec.hidden, weights.qkv_input),
      mixture_(spec.experts, spec.expert_uses, spec.expert_weights_normalised) {
  for (const RopeSpec& rope : spec.ropes) {
    ropes_.emplace_back(rope);
    ropes_.back().extend(std::min(spec.context_length, 4096u));
  }
  for (const LayerSpec& layer : spec.layers) {
    const auto found = std::find(shape_.windows.begin(), shape_.windows.end(), layer.window);
    window_index_.push_back(static_cast<std::uint32_t>(found - shape_.windows.begin()));
  }
  for (std::uint32_t i = 0; i < pool.size(); ++i) {
    threads_.push_back({Activations(spec.hidden, weights.qkv_input),
                        Activations(query_width_, weights.attention_output_input),
                        Activations(spec.hidden, weights.ffn_input),
                        Activations(spec.hidden, weights.router_input),
                        Activations(spec.hidden, weights.output_input),
                        std::vector<float>(kOwnRows * hidden_stride_),
                        std::vector<float>(kOwnRows * hidden_stride_),
                        std::vector<float>(std::max(hidden_stride_, query_stride_) + kLanes),
                        {},
                        false});
  }
}

void CpuPassRunner::make_room() {
  const std::uint64_t rows = plan_.rows();
  for (Buffer* buffer : {&x_, &attention_change_, &ffn_change_}) {
    buffer->reserve(rows * hidden_stride_ * sizeof(float), "activations");
  }
  queries_.reserve(rows * query_stride_ * sizeof(float), "activations");
  attended_.reserve(rows * query_stride_ * sizeof(float), "activations");
  logits_.reserve(std::uint64_t{plan_.wanted_rows()} * spec_.vocabulary * sizeof(float), "logits");
  if (spec_.experts > 0) {
    normalised_.reserve(rows * hidden_stride_ * sizeof(float), "activations");
    mixture_.resize(plan_.rows());
  }
  attention_.resize(plan_);
  for (RopeTable& rope : ropes_) rope.extend(plan_.positions_end());
}

// From the second layer on it is known which blocks come as hidden states. These go first: the last layers of
// keys and values are longer on their way, and projecting must not wait for them.
void CpuPassRunner::begin_awaiting(std::uint32_t layer) {
  awaited_ = 0;
  if (layer != 1) return;
  std::stable_partition(arrivals_.begin(), arrivals_.end(), [this](const PassArrival& arrival) {
    return blocks_.comes_hidden(arrival.group, arrival.slot);
  });
}

void CpuPassRunner::await_blocks(std::uint32_t layer) {
  for (; awaited_ < arrivals_.size(); ++awaited_) {
    const PassArrival& arrival = arrivals_[awaited_];
    if (hidden_.size() == kProjectedMax) return;
    if (hidden_.size() >= kProjectedMin && blocks_.is_awaited(arrival.slot, layer)) return;
    if (!arrival.awaited_by(*pass_, layer, blocks_.group_of(layer))) continue;
    if (poisoned_[arrival.span] != 0) continue;
    if (!blocks_.await_layer(arrival.slot, layer, patience_)) {
      poisoned_[arrival.span] = 1;
      continue;
    }
    // (Another span of the pass may read it too.)
    const bool claimed = std::any_of(hidden_.begin(), hidden_.end(),
                                     [&](const HiddenSlice& slice) { return slice.slot == arrival.slot; });
    if (claimed) continue;
    const std::optional<std::uint32_t> next = blocks_.claim_hidden(arrival.slot, layer);
    if (!next) continue;
    LOCI_CHECK(*next == layer, "a span reads layers in order");
    hidden_.push_back(
        {arrival.slot, {blocks_.slice(arrival.slot, layer), blocks_.position(arrival.slot, layer)}});
  }
}

void CpuPassRunner::run(const Pass& pass, std::vector<SpanResult>& results) {
  pass_ = &pass;
  plan_.make(pass, spec_.layer_count(), blocks_, shape_, pool_.size());
  poisoned_.assign(pass.spans.size(), 0);
  projected_ = {};
  make_room();
  // (What is copied has arrived, or its fill has failed: it is not waited for in vain.)
  mark_whole_blocks(
      pass, blocks_,
      [this](SlotId slot, std::uint32_t of) {
        if (!blocks_.await_layer(slot, of)) return false;
        projector_.project_up_to(blocks_, slot, of);
        return true;
      },
      arrivals_);
  patience_ = Patience(pass.patience);
  resize_inputs(0);
  output_input_.resize(plan_.wanted_rows(), kernels_);
  pool_.run([this](std::uint32_t thread) { work(thread); });
  release_embedding();

  results.assign(pass.spans.size(), {});
  for (const Segment& segment : plan_.segments()) {
    if (!segment.wanted) continue;
    results[segment.span].logits = {logits_.as<float>() + std::size_t{segment.row} * spec_.vocabulary,
                                    std::size_t{segment.count} * spec_.vocabulary};
  }
  for (std::size_t i = 0; i < pass.spans.size(); ++i) {
    if (poisoned_[i] == 0) continue;
    results[i] = {data_loss("a block that the span reads did not arrive"), {}};
  }
  pass_ = nullptr;
}

// Each row that is read brings its neighbours' pages into the process's memory (64 KiB, as a rule), which
// would in time be the whole table, beside its packed copy where the output is the same.
void CpuPassRunner::release_embedding() {
  constexpr std::uint64_t kRows = 512;
  embedded_rows_ += plan_.rows();
  if (embedded_rows_ < kRows) return;
  embedded_rows_ = 0;
  file_pages_.release(spec_.embedding, 0, spec_.embedding.rows);
}

std::uint32_t CpuPassRunner::rows_after(std::uint32_t layer) const {
  return layer + 1 == spec_.layer_count() ? plan_.wanted_rows() : plan_.rows_in_layer(layer);
}

void CpuPassRunner::resize_inputs(std::uint32_t layer) {
  attention_input_.resize(plan_.rows_in_layer(layer), kernels_);
  for (Activations* input : {&attention_output_input_, &ffn_input_, &router_input_, &down_input_}) {
    input->resize(rows_after(layer), kernels_);
  }
}

void CpuPassRunner::work(std::uint32_t thread) {
  threads_[thread].own = false;
  copy_blocks(thread);
  for (std::uint32_t layer = 0; layer < spec_.layer_count(); ++layer) run_layer(thread, layer);
  if (plan_.wanted_rows() > 0) run_output(thread);
}

void CpuPassRunner::run_layer(std::uint32_t thread, std::uint32_t layer) {
  const CpuLayer& weights = weights_.layers()[layer];
  ThreadState& state = threads_[thread];
  const std::uint32_t rows = plan_.rows_in_layer(layer), after = rows_after(layer);
  if (layer > 0 && (rows != plan_.rows_in_layer(layer - 1) || after != rows_after(layer - 1))) {
    // Spans have ended. The threads have passed a barrier.
    if (thread == 0) resize_inputs(layer);
    pool_.barrier(thread);
  }
  if (rows == 0) return;
  take_rows(state, rows);
  const Activations& qkv = prepare_attention(thread, layer);
  capture(thread, layer, qkv);
  project(thread, layer, qkv);
  take_arrivals(thread, layer);
  if (after == 0) return;
  attention_.run(thread,
                 {*pass_, plan_, poisoned_, layer, spec_.layers[layer].window, window_index_[layer], softcap_,
                  weights.sinks, after, queries_.as<float>(), attended_.as<float>(), query_stride_});
  pool_.barrier(thread);
  if (!spec_.parallel) take_rows(state, after);
  write_product(thread, weights.attention_output, prepare_attention_output(thread, after),
                attention_change_.as<float>());
  pool_.barrier(thread);
  const Activations& input = prepare_feed_forward(thread, layer);
  if (weights.mixture()) {
    run_mixture(thread, weights, input, after);
  } else {
    feed_forward(thread, weights.ffn.front(), input);
    pool_.barrier(thread);
    write_product(thread, weights.ffn.front().down, down_input_, ffn_change_.as<float>());
  }
  pool_.barrier(thread);
}

}  // namespace loci::cpu
