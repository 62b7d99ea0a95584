// SPDX-License-Identifier: Apache-2.0
// The work between the products of a pass, a row at a time: the residual stream, norms, and the inputs of the
// next products.
#include <algorithm>
#include <cstring>

#include "loci/base/check.h"
#include "loci/compute/cpu/cpu_pass_runner.h"

namespace loci::cpu {

void CpuPassRunner::copy_blocks(std::uint32_t thread) {
  if (pass_->copies.empty()) return;
  const auto copies = static_cast<std::uint32_t>(pass_->copies.size()), layers = spec_.layer_count();
  WorkRange range;
  while (pool_.claim(thread, copies * layers, range)) {
    for (std::uint32_t i = range.begin; i < range.end; ++i) {
      const BlockCopy& copy = pass_->copies[i / layers];
      if (blocks_.group_of(i % layers) != copy.group) continue;
      blocks_.copy_tokens(copy.from, copy.to, i % layers, copy.tokens);
    }
  }
  pool_.barrier(thread);
}

void CpuPassRunner::take_rows(ThreadState& state, std::uint32_t rows) {
  if (state.own || rows > kOwnRows) return;
  std::memcpy(state.x.data(), x_.data(), rows * hidden_stride_ * sizeof(float));
  state.own = true;
}

template <class Make>
void CpuPassRunner::each_row(std::uint32_t thread, std::uint32_t rows, const Make& make) {
  if (threads_[thread].own) {
    for (std::uint32_t row = 0; row < rows; ++row) make(row);
    return;
  }
  WorkRange range;
  while (pool_.claim(thread, rows, range)) {
    for (std::uint32_t row = range.begin; row < range.end; ++row) make(row);
  }
  pool_.barrier(thread);
}

Activations& CpuPassRunner::input(ThreadState& state, std::uint32_t rows, Activations& shared,
                                  Activations& own) const {
  if (!state.own) return shared;
  own.resize(rows, kernels_);
  return own;
}

float* CpuPassRunner::residual(ThreadState& state, std::uint32_t row) const {
  return (state.own ? state.x.data() : x_.as<float>()) + std::size_t{row} * hidden_stride_;
}

const float* CpuPassRunner::normalise(const CpuNorm& norm, const float* x, float* out) const {
  if (!norm.present()) return x;
  if (spec_.norm == NormKind::kRms) {
    kernels_.rms_norm(x, norm.weight, spec_.hidden, hidden_stride_, spec_.norm_epsilon, out);
  } else {
    kernels_.layer_norm(x, norm.weight, norm.bias, spec_.hidden, hidden_stride_, spec_.norm_epsilon, out);
  }
  return out;
}

void CpuPassRunner::embed(ThreadState& state, std::uint32_t row) {
  const Segment& segment = plan_.segment_of(row);
  const TokenId token = pass_->spans[segment.span].tokens[segment.token + row - segment.row];
  LOCI_CHECK(token.value < spec_.vocabulary, "a token outside the vocabulary");
  float* x = residual(state, row);
  decode_row(spec_.embedding, token.value, {x, spec_.hidden});
  if (!embedding_checks_.is_same(token.value)) has_changed_ = true;
  std::fill(x + spec_.hidden, x + hidden_stride_, 0.0f);
  if (spec_.embedding_scale != 1) kernels_.scale(x, spec_.hidden, spec_.embedding_scale, x);
  if (!spec_.position_embedding.present()) return;
  const std::uint64_t position = std::uint64_t{plan_.position(*pass_, row)} + spec_.position_offset;
  LOCI_CHECK(position < spec_.position_embedding.rows, "a position that the model has not learned");
  decode_row(spec_.position_embedding, position, {state.row.data(), spec_.hidden});
  if (!position_checks_.is_same(position)) has_changed_ = true;
  std::fill(state.row.begin() + spec_.hidden, state.row.begin() + hidden_stride_, 0.0f);
  kernels_.add(x, state.row.data(), hidden_stride_);
}

void CpuPassRunner::change_row(ThreadState& state, std::uint32_t row, const Buffer& changes,
                               const CpuNorm& norm) const {
  const float* change = changes.as<float>() + std::size_t{row} * hidden_stride_;
  kernels_.add(residual(state, row), normalise(norm, change, state.row.data()), hidden_stride_);
}

void CpuPassRunner::begin_row(ThreadState& state, std::uint32_t layer, std::uint32_t row) {
  if (layer == 0) return embed(state, row);
  const CpuLayer& before = weights_.layers()[layer - 1];
  if (spec_.parallel) change_row(state, row, attention_change_, before.attention_post_norm);
  change_row(state, row, ffn_change_, before.ffn_post_norm);
}

void CpuPassRunner::set_feed_forward_row(ThreadState& state, const CpuLayer& layer, std::uint32_t row,
                                         Activations& target) {
  const CpuNorm& norm = spec_.parallel && !layer.ffn_norm.present() ? layer.attention_norm : layer.ffn_norm;
  if (!layer.mixture()) {
    target.set_row(kernels_, row, normalise(norm, residual(state, row), state.row.data()));
    return;
  }
  float* kept =
      (state.own ? state.normalised.data() : normalised_.as<float>()) + std::size_t{row} * hidden_stride_;
  const float* values = normalise(norm, residual(state, row), kept);
  if (values != kept) std::memcpy(kept, values, hidden_stride_ * sizeof(float));
  target.set_row(kernels_, row, kept);
}

const Activations& CpuPassRunner::prepare_attention(std::uint32_t thread, std::uint32_t layer) {
  ThreadState& state = threads_[thread];
  const CpuLayer& weights = weights_.layers()[layer];
  const std::uint32_t rows = plan_.rows_in_layer(layer), after = rows_after(layer);
  Activations& attention = input(state, rows, attention_input_, state.attention_input);
  // Of a parallel layer's feed-forward part, which reads the same rows.
  Activations& beside = weights.mixture() ? input(state, after, router_input_, state.router_input)
                                          : input(state, after, ffn_input_, state.ffn_input);
  each_row(thread, rows, [&](std::uint32_t row) {
    begin_row(state, layer, row);
    attention.set_row(kernels_, row,
                      normalise(weights.attention_norm, residual(state, row), state.row.data()));
    if (spec_.parallel && row < after) set_feed_forward_row(state, weights, row, beside);
  });
  return attention;
}

const Activations& CpuPassRunner::prepare_attention_output(std::uint32_t thread, std::uint32_t rows) {
  ThreadState& state = threads_[thread];
  Activations& target = input(state, rows, attention_output_input_, state.attention_output_input);
  each_row(thread, rows, [&](std::uint32_t row) {
    target.set_row(kernels_, row, attended_.as<float>() + std::size_t{row} * query_stride_);
  });
  return target;
}

const Activations& CpuPassRunner::prepare_feed_forward(std::uint32_t thread, std::uint32_t layer) {
  ThreadState& state = threads_[thread];
  const CpuLayer& weights = weights_.layers()[layer];
  const std::uint32_t rows = rows_after(layer);
  Activations& target = weights.mixture() ? input(state, rows, router_input_, state.router_input)
                                          : input(state, rows, ffn_input_, state.ffn_input);
  if (spec_.parallel) return target;  // prepared beside attention's
  each_row(thread, rows, [&](std::uint32_t row) {
    change_row(state, row, attention_change_, weights.attention_post_norm);
    set_feed_forward_row(state, weights, row, target);
  });
  return target;
}

const Activations& CpuPassRunner::prepare_output(std::uint32_t thread) {
  ThreadState& state = threads_[thread];
  const std::uint32_t rows = plan_.wanted_rows();
  take_rows(state, rows);
  Activations& target = input(state, rows, output_input_, state.output_input);
  each_row(thread, rows, [&](std::uint32_t row) {
    begin_row(state, spec_.layer_count(), row);
    target.set_row(kernels_, row, normalise(weights_.output_norm(), residual(state, row), state.row.data()));
  });
  return target;
}

void CpuPassRunner::capture(std::uint32_t thread, std::uint32_t layer, const Activations& input) {
  const std::uint64_t row_bytes = hidden_row_bytes();
  for (std::uint32_t row = 0; row < input.layout().rows(); ++row) {
    const Segment& segment = plan_.segment_of(row);
    const Span& span = pass_->spans[segment.span];
    if (span.capture.empty() || row % pool_.size() != thread) continue;
    const std::span<std::byte> buffer = span.capture[layer];
    LOCI_CHECK(buffer.size() == row_bytes * span.tokens.size(), "a capture buffer has a row for each token");
    input.store_row(row, buffer.subspan((segment.token + row - segment.row) * row_bytes, row_bytes));
  }
}

}  // namespace loci::cpu
