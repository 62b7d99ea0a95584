// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/cpu_pass_runner.h"

#include <algorithm>
#include <numbers>

#include "loci/base/check.h"

namespace loci::cpu {

namespace {

AttentionShape attention_shape(const ModelSpec& spec, const KernelTable& kernels) {
  AttentionShape shape{spec.heads, spec.kv_heads, spec.head_dim, kernels.attention_rows, {}};
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
      mixture_(spec.experts, spec.expert_uses, spec.expert_weights_normalised),
      embedding_checks_(spec.embedding),
      position_checks_(spec.position_embedding) {
  file_pages_.release(spec.embedding, 0, spec.embedding.rows);
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

void CpuPassRunner::begin_awaiting(std::uint32_t layer) {
  awaited_.clear();
  for (const PassArrival& arrival : arrivals_) {
    if (poisoned_[arrival.span] == 0 && arrival.awaited_by(*pass_, layer, blocks_.group_of(layer)))
      awaited_.push_back({arrival.slot, arrival.span});
  }
  // Where it is known which blocks come as hidden states, these are first: the last layers of keys and values
  // are longer on their way, and projecting must not wait for them.
  std::stable_partition(awaited_.begin(), awaited_.end(),
                        [&](const Awaited& block) { return blocks_.comes_hidden(block.slot, layer); });
}

// Of what is awaited it takes out what has come: to hidden_ what must be projected, kProjectedMax at most.
void CpuPassRunner::sort_out(std::uint32_t layer) {
  const auto is_over = [&](const Awaited& block) {
    if (poisoned_[block.span] != 0) return true;
    if (blocks_.is_awaited(block.slot, layer)) return false;
    if (blocks_.is_hidden(block.slot, layer)) {
      // (Another span of the pass may read it too.)
      const bool is_taken =
          std::ranges::any_of(hidden_, [&](const HiddenSlice& slice) { return slice.slot == block.slot; });
      if (!is_taken && hidden_.size() == kProjectedMax) return false;
      if (!is_taken) hidden_.push_back({block.slot, {}});
    } else if (!blocks_.await_layer(block.slot, layer, patience_)) {
      poisoned_[block.span] = 1;
    }
    return true;
  };
  std::erase_if(awaited_, is_over);
}

void CpuPassRunner::await_blocks(std::uint32_t layer) {
  while (hidden_.empty() && !awaited_.empty()) {
    sort_out(layer);
    while (hidden_.size() < kProjectedMin && !awaited_.empty()) {
      const Awaited first = awaited_.front();
      if (!blocks_.await_layer(first.slot, layer, patience_)) poisoned_[first.span] = 1;
      sort_out(layer);
    }
    // Claimed only now, as a mover that wants one of them waits for the claim's end.
    std::erase_if(hidden_, [&](HiddenSlice& slice) {
      const std::optional<std::uint32_t> next = blocks_.claim_hidden(slice.slot, layer);
      if (!next) return true;  // a mover has projected it
      LOCI_CHECK(*next == layer, "a span reads layers in order");
      slice.to = {blocks_.slice(slice.slot, layer), blocks_.position(slice.slot, layer)};
      return false;
    });
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
  if (has_changed_) results.assign(pass.spans.size(), {health(), {}});
  pass_ = nullptr;
}

Status CpuPassRunner::health() const {
  if (!has_changed_) return {};
  return {StatusCode::kUnavailable,
          "the model's file was written to while it was served: put another file in its place by renaming "
          "it, and start the server again"};
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
