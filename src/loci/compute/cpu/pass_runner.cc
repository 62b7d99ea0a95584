#include "loci/compute/cpu/pass_runner.h"

#include <algorithm>
#include <map>

#include "loci/base/check.h"

namespace loci::cpu {

namespace {

// Rows up to which each thread prepares inputs for itself: less work than a barrier.
constexpr std::uint32_t kOwnRows = 2;

}  // namespace

PassRunner::PassRunner(const ModelSpec& spec, const CpuWeights& weights, const KernelTable& kernels,
                       ThreadPool& pool, BlockStorage& blocks)
    : spec_(spec),
      weights_(weights),
      kernels_(kernels),
      pool_(pool),
      blocks_(blocks),
      attention_(kernels, pool, blocks, spec.head_dim),
      rope_(spec.ropes.front()),
      hidden_stride_(padded_to_lanes(spec.hidden)),
      query_width_(spec.heads * spec.head_dim),
      query_stride_(padded_to_lanes(spec.heads * spec.head_dim)),
      query_factor_(spec.attention_scale * 1.44269504088896341f),
      attention_input_(spec.hidden, weights.qkv_input),
      attention_output_input_(query_width_, weights.attention_output_input),
      ffn_input_(spec.hidden, weights.ffn_input),
      down_input_(spec.ffn, weights.down_input),
      output_input_(spec.hidden, weights.output_input) {
  rope_.extend(std::min(spec.context_length, 4096u));
  for (std::uint32_t i = 0; i < pool.size(); ++i) {
    threads_.push_back({Activations(spec.hidden, weights.ffn_input),
                        Activations(spec.hidden, weights.qkv_input),
                        Activations(spec.hidden, weights.output_input),
                        Activations(query_width_, weights.attention_output_input),
                        std::vector<float>(std::max(hidden_stride_, query_stride_) + kLanes),
                        {}});
  }
}

void PassRunner::make_room() {
  const std::uint64_t rows = plan_.rows();
  x_.reserve(rows * hidden_stride_ * sizeof(float), "activations");
  queries_.reserve(rows * query_stride_ * sizeof(float), "activations");
  attended_.reserve(rows * query_stride_ * sizeof(float), "activations");
  logits_.reserve(std::uint64_t{plan_.wanted_rows()} * spec_.vocabulary * sizeof(float), "logits");
  attention_.resize(plan_);
  rope_.extend(plan_.positions_end());
}

void PassRunner::mark_whole_blocks() {
  for (const BlockCopy& copy : pass_->copies) {
    // All of `from` is needed now; a failure passes on to what is copied.
    if (blocks_.await_layer(copy.from, blocks_.groups()[copy.group].layers.back())) {
      blocks_.set_whole(copy.group, copy.to);
    } else {
      blocks_.begin_fill(copy.group, copy.to);
      blocks_.fill_failed(copy.group, copy.to);
    }
  }
  arrivals_.clear();
  for (std::uint32_t g = 0; g < blocks_.groups().size(); ++g) mark_whole_blocks(g);
}

void PassRunner::mark_whole_blocks(std::uint32_t g) {
  const LayerGroup& group = blocks_.groups()[g];
  // Slot to layers that a span writes from its first token on.
  std::map<std::uint32_t, std::uint32_t> computed;
  for (const Span& span : pass_->spans) {
    const BlockTable& table = span.tables[g];
    const std::uint32_t begin = std::max(span.position, table.write_from);
    const std::uint32_t end = span.position + static_cast<std::uint32_t>(span.tokens.size());
    for (std::uint32_t i = (begin + kBlockTokens - 1) / kBlockTokens; i * kBlockTokens < end; ++i) {
      std::uint32_t& depth = computed[table.blocks[i].value];
      depth = std::max(depth, span.layers.end);
    }
  }
  for (const auto& [slot, depth] : computed) {
    if (depth > group.layers.back()) blocks_.set_whole(g, SlotId(slot));
  }
  for (std::uint32_t i = 0; i < pass_->spans.size(); ++i) {
    const Span& span = pass_->spans[i];
    const std::uint32_t end = span.position + static_cast<std::uint32_t>(span.tokens.size());
    const std::uint32_t first = first_visible(group.window, span.position) / kBlockTokens;
    for (std::uint32_t block = first; block * kBlockTokens < end; ++block) {
      const SlotId slot = span.tables[g].blocks[block];
      if (blocks_.is_whole(g, slot)) continue;
      const auto found = computed.find(slot.value);
      arrivals_.push_back({i, g, slot, found == computed.end() ? 0 : found->second});
    }
  }
}

void PassRunner::await_blocks(std::uint32_t layer) {
  for (const Arrival& arrival : arrivals_) {
    if (arrival.group != blocks_.group_of(layer)) continue;
    if (layer < arrival.computed_layers || layer >= pass_->spans[arrival.span].layers.end) continue;
    if (poisoned_[arrival.span] == 0 && !blocks_.await_layer(arrival.slot, layer))
      poisoned_[arrival.span] = 1;
  }
}

void PassRunner::run(const Pass& pass, std::vector<SpanResult>& results) {
  pass_ = &pass;
  plan_.make(pass, spec_.layer_count(), blocks_, {spec_.heads, spec_.kv_heads, kernels_.attention_rows},
             pool_.size());
  poisoned_.assign(pass.spans.size(), 0);
  make_room();
  mark_whole_blocks();
  for (Activations* input : {&attention_input_, &attention_output_input_, &ffn_input_, &down_input_}) {
    input->resize(plan_.rows(), kernels_);
  }
  output_input_.resize(plan_.wanted_rows(), kernels_);
  pool_.run([this](std::uint32_t thread) { work(thread); });

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

void PassRunner::work(std::uint32_t thread) {
  start(thread);
  pool_.barrier(thread);
  for (std::uint32_t layer = 0; layer < spec_.layer_count(); ++layer) run_layer(thread, layer);
  if (plan_.wanted_rows() > 0) run_output(thread);
}

void PassRunner::start(std::uint32_t thread) {
  WorkRange range;
  const auto copies = static_cast<std::uint32_t>(pass_->copies.size()), layers = spec_.layer_count();
  const std::uint32_t total = copies * layers + plan_.rows();
  while (pool_.claim(thread, total, range)) {
    for (std::uint32_t i = range.begin; i < range.end; ++i) {
      if (i < copies * layers) {
        const BlockCopy& copy = pass_->copies[i / layers];
        if (blocks_.group_of(i % layers) == copy.group) {
          blocks_.copy_tokens(copy.from, copy.to, i % layers, copy.tokens);
        }
        continue;
      }
      const std::uint32_t row = i - copies * layers;
      const Segment& segment = plan_.segment_of(row);
      const TokenId token = pass_->spans[segment.span].tokens[segment.token + row - segment.row];
      LOCI_CHECK(token.value < spec_.vocabulary, "a token outside the vocabulary");
      float* x = x_.as<float>() + std::size_t{row} * hidden_stride_;
      decode_row(spec_.embedding, token.value, {x, spec_.hidden});
      std::fill(x + spec_.hidden, x + hidden_stride_, 0.0f);
    }
  }
}

void PassRunner::normalise_row(std::uint32_t row, const float* norm, ThreadState& state,
                               Activations& input) const {
  kernels_.rms_norm(x_.as<float>() + std::size_t{row} * hidden_stride_, norm, spec_.hidden, hidden_stride_,
                    spec_.norm_epsilon, state.row.data());
  input.set_row(kernels_, row, state.row.data());
}

void PassRunner::attention_row(std::uint32_t row, const float*, ThreadState&, Activations& input) const {
  input.set_row(kernels_, row, attended_.as<float>() + std::size_t{row} * query_stride_);
}

const Activations& PassRunner::prepare(std::uint32_t thread, std::uint32_t rows, const float* norm,
                                       RowSource source, Activations& shared, Activations& own) {
  ThreadState& state = threads_[thread];
  if (rows <= kOwnRows) {
    own.resize(rows, kernels_);
    for (std::uint32_t row = 0; row < rows; ++row) (this->*source)(row, norm, state, own);
    return own;
  }
  WorkRange range;
  while (pool_.claim(thread, rows, range)) {
    for (std::uint32_t row = range.begin; row < range.end; ++row) (this->*source)(row, norm, state, shared);
  }
  pool_.barrier(thread);
  return shared;
}

void PassRunner::capture(std::uint32_t thread, std::uint32_t layer, const Activations& input) {
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

// Spans have ended: the threads have passed a barrier, and pass another before they go on.
void PassRunner::resize_inputs(std::uint32_t thread, std::uint32_t rows) {
  if (thread == 0) {
    for (Activations* input : {&attention_input_, &attention_output_input_, &ffn_input_, &down_input_}) {
      input->resize(rows, kernels_);
    }
  }
  pool_.barrier(thread);
}

void PassRunner::run_layer(std::uint32_t thread, std::uint32_t layer) {
  const CpuLayer& weights = weights_.layers()[layer];
  ThreadState& state = threads_[thread];
  const std::uint32_t rows = plan_.rows_in_layer(layer);
  const bool last = layer + 1 == spec_.layer_count();
  const std::uint32_t rows_after = last ? plan_.wanted_rows() : rows;
  if (layer > 0 && rows != plan_.rows_in_layer(layer - 1)) resize_inputs(thread, rows);
  if (rows == 0) return;
  const Activations& qkv = prepare(thread, rows, weights.attention_norm, &PassRunner::normalise_row,
                                   attention_input_, state.attention_input);
  capture(thread, layer, qkv);
  project(thread, layer, qkv);
  if (thread == 0) await_blocks(layer);
  pool_.barrier(thread);
  if (rows_after == 0) return;
  attention_.run(thread, {*pass_, plan_, poisoned_, layer, rows_after, queries_.as<float>(),
                          attended_.as<float>(), query_stride_});
  pool_.barrier(thread);
  if (rows_after != rows) resize_inputs(thread, rows_after);
  add_product(thread, weights.attention_output,
              prepare(thread, rows_after, nullptr, &PassRunner::attention_row, attention_output_input_,
                      state.attention_output_input));
  pool_.barrier(thread);
  feed_forward(thread, weights,
               prepare(thread, rows_after, weights.ffn_norm, &PassRunner::normalise_row, ffn_input_,
                       state.hidden_input));
  pool_.barrier(thread);
  add_product(thread, weights.ffn_down, down_input_);
  pool_.barrier(thread);
}

}  // namespace loci::cpu
