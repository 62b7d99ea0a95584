#include "loci/compute/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "loci/compute/cpu/block_storage.h"
#include "loci/compute/cpu/kernel_table.h"
#include "loci/compute/cpu/pack.h"
#include "loci/compute/cpu/thread_pool.h"

namespace loci {
namespace {

struct Linear {
  PackedMatrix weight;
  std::vector<float> bias;  // empty: none
};

struct Layer {
  std::vector<float> attention_norm, ffn_norm;
  Linear query, key, value, output, gate, up, down;
};

// Activations as a product takes them: float32, and int8 where a consumer is quantised.
struct Activations {
  std::uint32_t columns = 0;  // a multiple of 32; what is beyond the real ones is zero
  std::vector<float> floats;
  std::vector<std::int8_t> values;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;

  void resize(std::uint32_t rows, std::uint32_t real_columns) {
    columns = (real_columns + 31) / 32 * 32;
    const std::size_t size = std::size_t{rows} * columns;
    if (floats.size() >= size) return;
    floats.assign(size, 0.0f);
    values.assign(size, 0);
    scales.assign(size / 32, 0.0f);
    sums.assign(size / 16, 0);
  }
  float* row(std::uint32_t r) { return floats.data() + std::size_t{r} * columns; }
};

struct Row {
  std::uint32_t span;
  std::uint32_t position;
  TokenId token;
};

struct AttentionTask {
  std::uint32_t first_row;
  std::uint32_t tokens;
  std::uint32_t kv_head;
};

std::vector<float> decode_vector(const TensorView& tensor, std::uint32_t padded) {
  std::vector<float> out(padded, 0.0f);
  decode_row(tensor, 0, std::span<float>(out).first(tensor.columns));
  return out;
}

std::uint32_t padded(std::uint32_t n) { return (n + 31) / 32 * 32; }

class CpuBackend final : public Backend {
 public:
  CpuBackend(const ModelSpec& spec, const KernelTable& kernels, std::uint32_t threads)
      : spec_(spec), kernels_(kernels), pool_(threads),
        storage_(spec.layer_count(), spec.kv_heads, spec.head_dim) {}

  Status load();
  const BackendInfo& info() const override { return info_; }
  Status allocate_blocks(std::uint32_t count) override {
    LOCI_RETURN_IF_ERROR(storage_.allocate(count));
    return {};
  }
  void run(const Pass& pass, std::vector<SpanResult>& results) override;
  void begin_fill(SlotId slot) override { storage_.begin_fill(slot); }
  void write_layer(SlotId slot, std::uint32_t layer, std::span<const std::byte> slice) override {
    LOCI_CHECK(slice.size() == storage_.slice_bytes(), "one layer of one block");
    std::memcpy(storage_.slice_of(slot, layer).data(), slice.data(), slice.size());
  }
  void read_layer(SlotId slot, std::uint32_t layer, std::span<std::byte> slice) const override {
    LOCI_CHECK(slice.size() == storage_.slice_bytes(), "one layer of one block");
    std::memcpy(slice.data(), storage_.slice_of(slot, layer).data(), slice.size());
  }
  void layer_arrived(SlotId slot, std::uint32_t layer) override { storage_.layer_arrived(slot, layer); }
  void fill_failed(SlotId slot) override { storage_.fill_failed(slot); }

 private:
  Result<Linear> load_linear(const TensorView& weight, const TensorView& bias);
  void prepare(const Pass& pass);
  void make_tables(std::uint32_t positions);
  void plan_attention();
  void compute(const Pass& pass, std::uint32_t thread);
  void embed(std::uint32_t thread);
  void wait_for_layer(const Pass& pass, std::uint32_t layer);
  void norm_rows(const std::vector<float>& weight, bool quantise, std::uint32_t rows, std::uint32_t thread);
  void product(const Linear& linear, Activations& in, Activations& out, bool accumulate, std::uint32_t rows,
               std::uint32_t thread, std::uint32_t threads);
  void write_state(std::uint32_t layer, std::uint32_t rows, std::uint32_t thread, const Pass& pass);
  void capture(const Pass& pass, std::uint32_t layer, std::uint32_t row);
  void attention(const Pass& pass, std::uint32_t layer, std::uint32_t rows, std::uint32_t thread);
  void attend(const Pass& pass, std::uint32_t layer, const AttentionTask& task, std::vector<float>& scratch);
  void feed_forward(const Layer& layer, std::uint32_t rows, std::uint32_t thread);
  void quantise_rows(Activations& a, std::uint32_t rows, std::uint32_t thread);
  void logits(const Pass& pass, std::uint32_t thread);
  // This thread's share of `count` things.
  std::pair<std::uint32_t, std::uint32_t> share(std::uint32_t count, std::uint32_t thread) const {
    const std::uint64_t n = pool_.threads();
    return {static_cast<std::uint32_t>(count * std::uint64_t{thread} / n),
            static_cast<std::uint32_t>(count * (std::uint64_t{thread} + 1) / n)};
  }

  const ModelSpec spec_;
  const KernelTable& kernels_;
  ThreadPool pool_;
  BlockStorage storage_;
  BackendInfo info_;
  std::vector<Layer> layers_;
  std::vector<float> output_norm_;
  Linear output_;
  std::vector<float> cosines_, sines_;  // [positions, pairs]

  // Of the running pass. Rows are ordered by their span's last layer, the longest first, so that the rows
  // which a layer computes are a prefix.
  std::vector<Row> rows_;
  std::vector<std::uint32_t> rows_of_layer_;
  std::vector<std::uint32_t> first_row_;  // by span
  std::vector<std::atomic<bool>> poisoned_{};
  std::vector<AttentionTask> tasks_;
  std::atomic<std::uint32_t> next_task_{0};
  Activations hidden_, normed_, query_, key_, value_, attended_, gate_, up_, activated_, wanted_;
  std::vector<std::uint32_t> wanted_rows_;
  std::vector<float> logits_;
};

Result<Linear> CpuBackend::load_linear(const TensorView& weight, const TensorView& bias) {
  Linear linear;
  LOCI_ASSIGN_OR_RETURN(linear.weight, make_packed(weight));
  pool_.run([&](std::uint32_t thread) {
    const auto [begin, end] = share(linear.weight.groups, thread);
    pack_groups(weight, linear.weight, begin, end);
  });
  info_.weight_bytes += linear.weight.bytes;
  if (bias.present()) linear.bias = decode_vector(bias, padded(linear.weight.outputs));
  return linear;
}

Status CpuBackend::load() {
  if (spec_.head_dim % 16 != 0 || spec_.rope.dimensions % 2 != 0) {
    return invalid_argument(fmt::format("expected a multiple of 16, found {}", spec_.head_dim), "head_dim");
  }
  const std::uint32_t hidden = padded(spec_.hidden);
  for (const LayerSpec& from : spec_.layers) {
    Layer layer;
    layer.attention_norm = decode_vector(from.attention_norm, hidden);
    layer.ffn_norm = decode_vector(from.ffn_norm, hidden);
    LOCI_ASSIGN_OR_RETURN(layer.query, load_linear(from.query, from.query_bias));
    LOCI_ASSIGN_OR_RETURN(layer.key, load_linear(from.key, from.key_bias));
    LOCI_ASSIGN_OR_RETURN(layer.value, load_linear(from.value, from.value_bias));
    LOCI_ASSIGN_OR_RETURN(layer.output, load_linear(from.attention_output, from.attention_output_bias));
    LOCI_ASSIGN_OR_RETURN(layer.gate, load_linear(from.ffn_gate, {}));
    LOCI_ASSIGN_OR_RETURN(layer.up, load_linear(from.ffn_up, {}));
    LOCI_ASSIGN_OR_RETURN(layer.down, load_linear(from.ffn_down, {}));
    layers_.push_back(std::move(layer));
  }
  output_norm_ = decode_vector(spec_.output_norm, hidden);
  LOCI_ASSIGN_OR_RETURN(output_, load_linear(spec_.output, {}));
  info_.name = "cpu";
  info_.description = fmt::format("{}, {} threads", kernels_.name, pool_.threads());
  info_.layout = "f16 [layer][K: kv head, dim, token | V: kv head, token, dim]";
  info_.layers = spec_.layer_count();
  info_.vocabulary = spec_.vocabulary;
  info_.layer_slice_bytes = storage_.slice_bytes();
  info_.block_bytes = storage_.block_bytes();
  info_.hidden_row_bytes = std::uint64_t{hidden} + hidden / 32 * 4;
  return {};
}

void CpuBackend::make_tables(std::uint32_t positions) {
  const std::size_t pairs = spec_.rope.inverse_frequency.size();
  for (std::size_t p = cosines_.size() / pairs; p < positions; ++p) {
    for (const double frequency : spec_.rope.inverse_frequency) {
      cosines_.push_back(static_cast<float>(std::cos(static_cast<double>(p) * frequency)));
      sines_.push_back(static_cast<float>(std::sin(static_cast<double>(p) * frequency)));
    }
  }
}

void CpuBackend::prepare(const Pass& pass) {
  std::vector<std::uint32_t> order(pass.spans.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return pass.spans[a].layers.end > pass.spans[b].layers.end;
  });
  rows_.clear();
  first_row_.assign(pass.spans.size(), 0);
  rows_of_layer_.assign(spec_.layer_count() + 1, 0);
  std::uint32_t last_position = 0;
  for (const std::uint32_t s : order) {
    const Span& span = pass.spans[s];
    const auto count = static_cast<std::uint32_t>(span.tokens.size());
    LOCI_CHECK(count > 0 && span.layers.begin == 0 && span.layers.end > 0 &&
                   span.layers.end <= spec_.layer_count(), "a span has tokens and layers of the model");
    LOCI_CHECK(std::uint64_t{span.position} + count <= span.blocks.size() * std::uint64_t{kBlockTokens},
               "a block table reaches to the span's last token");
    for (const SlotId slot : span.blocks) LOCI_CHECK(slot.value < storage_.count(), "a slot of the pool");
    first_row_[s] = static_cast<std::uint32_t>(rows_.size());
    for (std::uint32_t i = 0; i < count; ++i) rows_.push_back({s, span.position + i, span.tokens[i]});
    for (std::uint32_t l = 0; l < span.layers.end; ++l) rows_of_layer_[l] += count;
    last_position = std::max(last_position, span.position + count);
  }
  make_tables(last_position);
  poisoned_ = std::vector<std::atomic<bool>>(pass.spans.size());
  const auto n = static_cast<std::uint32_t>(rows_.size());
  hidden_.resize(n, spec_.hidden);
  normed_.resize(n, spec_.hidden);
  query_.resize(n, spec_.heads * spec_.head_dim);
  key_.resize(n, spec_.kv_width());
  value_.resize(n, spec_.kv_width());
  attended_.resize(n, spec_.heads * spec_.head_dim);
  gate_.resize(n, spec_.ffn);
  up_.resize(n, spec_.ffn);
  activated_.resize(n, spec_.ffn);
  wanted_rows_.clear();
  for (std::uint32_t s = 0; s < pass.spans.size(); ++s) {
    const Span& span = pass.spans[s];
    if (span.logits == LogitsWanted::kNone) continue;
    LOCI_CHECK(span.layers.end == spec_.layer_count(), "logits need every layer");
    const auto count = static_cast<std::uint32_t>(span.tokens.size());
    for (std::uint32_t i = span.logits == LogitsWanted::kAll ? 0 : count - 1; i < count; ++i) {
      wanted_rows_.push_back(first_row_[s] + i);
    }
  }
  wanted_.resize(static_cast<std::uint32_t>(wanted_rows_.size()), spec_.hidden);
  logits_.resize(wanted_rows_.size() * spec_.vocabulary);
  plan_attention();
}

void CpuBackend::plan_attention() {
  tasks_.clear();
  const std::uint32_t group = spec_.heads / spec_.kv_heads;
  const std::uint32_t most = std::max(1u, kAttentionRows / group);
  for (std::uint32_t row = 0; row < rows_.size();) {
    std::uint32_t tokens = 1;
    while (tokens < most && row + tokens < rows_.size() && rows_[row + tokens].span == rows_[row].span) ++tokens;
    for (std::uint32_t head = 0; head < spec_.kv_heads; ++head) tasks_.push_back({row, tokens, head});
    row += tokens;
  }
}

void CpuBackend::run(const Pass& pass, std::vector<SpanResult>& results) {
  prepare(pass);
  pool_.run([&](std::uint32_t thread) { compute(pass, thread); });
  results.assign(pass.spans.size(), {});
  // A span that attends to what a poisoned one wrote is poisoned as well.
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t a = 0; a < pass.spans.size(); ++a) {
      if (!poisoned_[a]) continue;
      const Span& bad = pass.spans[a];
      const std::size_t begin = bad.position / kBlockTokens;
      const std::size_t end = (bad.position + bad.tokens.size() + kBlockTokens - 1) / kBlockTokens;
      for (std::size_t b = 0; b < pass.spans.size(); ++b) {
        if (poisoned_[b] || pass.spans[b].position < bad.position) continue;
        for (std::size_t i = begin; i < std::min(end, pass.spans[b].blocks.size()); ++i) {
          if (pass.spans[b].blocks[i] == bad.blocks[i] && !poisoned_[b]) poisoned_[b] = changed = true;
        }
      }
    }
  }
  std::size_t at = 0;
  for (std::size_t s = 0; s < pass.spans.size(); ++s) {
    const Span& span = pass.spans[s];
    const std::size_t count = span.logits == LogitsWanted::kNone ? 0
                              : span.logits == LogitsWanted::kLast ? 1 : span.tokens.size();
    results[s].logits = std::span<const float>(logits_).subspan(at * spec_.vocabulary, count * spec_.vocabulary);
    at += count;
    if (poisoned_[s]) results[s].status = data_loss("a block that the span reads did not arrive");
  }
}

void CpuBackend::embed(std::uint32_t thread) {
  const auto [begin, end] = share(static_cast<std::uint32_t>(rows_.size()), thread);
  for (std::uint32_t r = begin; r < end; ++r) {
    decode_row(spec_.embedding, rows_[r].token.value, std::span<float>(hidden_.row(r), spec_.hidden));
  }
}

void CpuBackend::wait_for_layer(const Pass& pass, std::uint32_t layer) {
  for (std::size_t s = 0; s < pass.spans.size(); ++s) {
    if (pass.spans[s].layers.end <= layer) continue;
    for (const SlotId slot : pass.spans[s].blocks) {
      if (!storage_.wait_for_layer(slot, layer)) poisoned_[s] = true;
    }
  }
}

void CpuBackend::norm_rows(const std::vector<float>& weight, bool quantise, std::uint32_t rows,
                           std::uint32_t thread) {
  const auto [begin, end] = share(rows, thread);
  for (std::uint32_t r = begin; r < end; ++r) {
    kernels_.rms_norm(hidden_.row(r), weight.data(), spec_.norm_epsilon, spec_.hidden, hidden_.columns,
                      normed_.row(r));
  }
  if (quantise) quantise_rows(normed_, rows, thread);
}

void CpuBackend::quantise_rows(Activations& a, std::uint32_t rows, std::uint32_t thread) {
  const auto [begin, end] = share(rows, thread);
  for (std::uint32_t r = begin; r < end; ++r) {
    const std::size_t at = std::size_t{r} * a.columns;
    kernels_.quantise(a.row(r), a.columns, a.values.data() + at, a.scales.data() + at / 32, a.sums.data() + at / 16);
  }
}

void CpuBackend::product(const Linear& linear, Activations& in, Activations& out, bool accumulate,
                         std::uint32_t rows, std::uint32_t thread, std::uint32_t threads) {
  const PackedMatrix& weight = linear.weight;
  LinearArgs args{};
  args.weights = weight.data.get();
  args.blocks = weight.blocks;
  args.group_begin = static_cast<std::uint32_t>(std::uint64_t{weight.groups} * thread / threads);
  args.group_end = static_cast<std::uint32_t>(std::uint64_t{weight.groups} * (thread + 1) / threads);
  args.quantised = {in.values.data(), in.scales.data(), in.sums.data()};
  args.floats = in.floats.data();
  args.rows = rows;
  args.out = out.floats.data();
  args.out_stride = out.columns;
  args.outputs = weight.outputs;
  args.accumulate = accumulate;
  kernels_.linear[static_cast<int>(weight.format)](args);
  if (linear.bias.empty()) return;
  const std::uint32_t first = args.group_begin * kLanes;
  const std::uint32_t last = std::min(args.group_end * kLanes, weight.outputs);
  for (std::uint32_t r = 0; r < rows && first < last; ++r) {
    kernels_.add(out.row(r) + first, linear.bias.data() + first, last - first);
  }
}

void CpuBackend::capture(const Pass& pass, std::uint32_t layer, std::uint32_t row) {
  const Span& span = pass.spans[rows_[row].span];
  if (span.capture.empty()) return;
  const std::size_t at = std::size_t{row} * normed_.columns;
  std::byte* out = span.capture[layer].data() + (rows_[row].position - span.position) * info_.hidden_row_bytes;
  std::memcpy(out, normed_.values.data() + at, normed_.columns);
  std::memcpy(out + normed_.columns, normed_.scales.data() + at / 32, normed_.columns / 32 * 4);
}

void CpuBackend::write_state(std::uint32_t layer, std::uint32_t rows, std::uint32_t thread, const Pass& pass) {
  const auto [begin, end] = share(rows, thread);
  const std::size_t pairs = spec_.rope.inverse_frequency.size();
  const bool adjacent = spec_.rope.layout == RopeLayout::kAdjacent;
  std::vector<std::uint16_t> half(spec_.head_dim);
  for (std::uint32_t r = begin; r < end; ++r) {
    const Row& row = rows_[r];
    const float* cosines = cosines_.data() + row.position * pairs;
    const float* sines = sines_.data() + row.position * pairs;
    const SlotId slot = pass.spans[row.span].blocks[row.position / kBlockTokens];
    const std::uint32_t token = row.position % kBlockTokens;
    const auto n = static_cast<std::uint32_t>(pairs);
    for (std::uint32_t h = 0; h < spec_.heads; ++h) {
      kernels_.rotate(query_.row(r) + h * spec_.head_dim, cosines, sines, n, adjacent);
    }
    kernels_.scale(query_.row(r), spec_.attention_scale, spec_.heads * spec_.head_dim);
    for (std::uint32_t h = 0; h < spec_.kv_heads; ++h) {
      float* key = key_.row(r) + h * spec_.head_dim;
      kernels_.rotate(key, cosines, sines, n, adjacent);
      kernels_.to_f16(key, spec_.head_dim, half.data());
      std::uint16_t* keys = storage_.keys(slot, layer, h);
      for (std::uint32_t d = 0; d < spec_.head_dim; ++d) keys[d * kBlockTokens + token] = half[d];
      kernels_.to_f16(value_.row(r) + h * spec_.head_dim, spec_.head_dim,
                      storage_.values(slot, layer, h) + std::size_t{token} * spec_.head_dim);
    }
    capture(pass, layer, r);
  }
}

void CpuBackend::attend(const Pass& pass, std::uint32_t layer, const AttentionTask& task,
                        std::vector<float>& scratch) {
  const std::uint32_t group = spec_.heads / spec_.kv_heads, dim = spec_.head_dim;
  const std::uint32_t rows = task.tokens * group;
  const Span& span = pass.spans[rows_[task.first_row].span];
  scratch.resize(std::size_t{rows} * (3 * dim + kAttentionPartial + 4));
  float* queries = scratch.data();
  float* total = queries + std::size_t{rows} * dim;
  float* part = total + std::size_t{rows} * dim;
  float* scores = part + std::size_t{rows} * dim;
  float* total_greatest = scores + std::size_t{rows} * kAttentionPartial;
  float* total_weight = total_greatest + rows;
  float* part_greatest = total_weight + rows;
  float* part_weight = part_greatest + rows;
  const auto position = [&](std::uint32_t i) { return rows_[task.first_row + i / group].position; };
  for (std::uint32_t i = 0; i < rows; ++i) {
    const float* from = query_.row(task.first_row + i / group) + (task.kv_head * group + i % group) * dim;
    std::memcpy(queries + std::size_t{i} * dim, from, dim * sizeof(float));
  }
  const std::uint32_t last = position(rows - 1);
  for (std::uint32_t begin = 0; begin <= last; begin += kAttentionPartial) {
    std::array<const std::uint16_t*, kAttentionPartial / kBlockTokens> keys{}, values{};
    for (std::uint32_t b = 0; b < keys.size() && begin + b * kBlockTokens <= last; ++b) {
      const SlotId slot = span.blocks[begin / kBlockTokens + b];
      keys[b] = storage_.keys(slot, layer, task.kv_head);
      values[b] = storage_.values(slot, layer, task.kv_head);
    }
    // Rows whose tokens end before this partial have nothing in it; they come first.
    std::uint32_t skip = 0;
    while (position(skip) < begin) ++skip;
    std::vector<std::uint32_t> visible(rows - skip);
    for (std::uint32_t i = skip; i < rows; ++i) {
      visible[i - skip] = std::min(position(i) - begin + 1, kAttentionPartial);
    }
    AttentionArgs args{keys.data(), values.data(), queries + std::size_t{skip} * dim, visible.data(), rows - skip, dim,
                       part_greatest, part_weight, part, scores};
    if (begin == 0) {
      args.greatest = total_greatest;
      args.weight = total_weight;
      args.sum = total;
    }
    kernels_.attend(args);
    for (std::uint32_t i = skip; begin > 0 && i < rows; ++i) {
      kernels_.merge(total_greatest + i, total_weight + i, total + std::size_t{i} * dim, part_greatest[i - skip],
                     part_weight[i - skip], part + std::size_t{i - skip} * dim, dim);
    }
  }
  for (std::uint32_t i = 0; i < rows; ++i) {
    float* out = attended_.row(task.first_row + i / group) + (task.kv_head * group + i % group) * dim;
    kernels_.finish(total + std::size_t{i} * dim, total_weight[i], dim, out);
  }
}

void CpuBackend::attention(const Pass& pass, std::uint32_t layer, std::uint32_t rows, std::uint32_t thread) {
  (void)thread;
  std::vector<float> scratch;
  for (;;) {
    const std::uint32_t at = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (at >= tasks_.size() || tasks_[at].first_row >= rows) return;
    attend(pass, layer, tasks_[at], scratch);
  }
}

void CpuBackend::feed_forward(const Layer& layer, std::uint32_t rows, std::uint32_t thread) {
  norm_rows(layer.ffn_norm, layer.gate.weight.quantised() || layer.up.weight.quantised(), rows, thread);
  pool_.barrier();
  product(layer.gate, normed_, gate_, false, rows, thread, pool_.threads());
  product(layer.up, normed_, up_, false, rows, thread, pool_.threads());
  pool_.barrier();
  const auto [begin, end] = share(rows, thread);
  for (std::uint32_t r = begin; r < end; ++r) kernels_.swiglu(gate_.row(r), up_.row(r), gate_.columns, activated_.row(r));
  if (layer.down.weight.quantised()) quantise_rows(activated_, rows, thread);
  pool_.barrier();
  product(layer.down, activated_, hidden_, true, rows, thread, pool_.threads());
  pool_.barrier();
}

void CpuBackend::logits(const Pass&, std::uint32_t thread) {
  const auto count = static_cast<std::uint32_t>(wanted_rows_.size());
  if (count == 0) return;
  const auto [begin, end] = share(count, thread);
  for (std::uint32_t i = begin; i < end; ++i) {
    kernels_.rms_norm(hidden_.row(wanted_rows_[i]), output_norm_.data(), spec_.norm_epsilon, spec_.hidden,
                      hidden_.columns, wanted_.row(i));
  }
  if (output_.weight.quantised()) quantise_rows(wanted_, count, thread);
  pool_.barrier();
  LinearArgs args{};
  args.weights = output_.weight.data.get();
  args.blocks = output_.weight.blocks;
  std::tie(args.group_begin, args.group_end) = share(output_.weight.groups, thread);
  args.quantised = {wanted_.values.data(), wanted_.scales.data(), wanted_.sums.data()};
  args.floats = wanted_.floats.data();
  args.rows = count;
  args.out = logits_.data();
  args.out_stride = spec_.vocabulary;
  args.outputs = spec_.vocabulary;
  kernels_.linear[static_cast<int>(output_.weight.format)](args);
}

void CpuBackend::compute(const Pass& pass, std::uint32_t thread) {
  if (thread == 0) {
    for (const BlockCopy& copy : pass.copies) storage_.copy(copy);
  }
  embed(thread);
  const std::uint32_t threads = pool_.threads();
  for (std::uint32_t l = 0; l < layers_.size(); ++l) {
    const std::uint32_t rows = rows_of_layer_[l];
    if (rows == 0) break;
    const bool last = l + 1 == layers_.size();
    const std::uint32_t onward = last ? rows : rows_of_layer_[l + 1];
    Layer& layer = layers_[l];
    pool_.barrier();
    norm_rows(layer.attention_norm, true, rows, thread);
    if (thread == 0) {
      wait_for_layer(pass, l);
      next_task_.store(0, std::memory_order_relaxed);
    }
    pool_.barrier();
    product(layer.query, normed_, query_, false, onward, thread, threads);
    product(layer.key, normed_, key_, false, rows, thread, threads);
    product(layer.value, normed_, value_, false, rows, thread, threads);
    pool_.barrier();
    write_state(l, rows, thread, pass);
    pool_.barrier();
    if (onward == 0) continue;
    attention(pass, l, onward, thread);
    pool_.barrier();
    if (layer.output.weight.quantised()) quantise_rows(attended_, onward, thread);
    pool_.barrier();
    product(layer.output, attended_, hidden_, true, onward, thread, threads);
    pool_.barrier();
    feed_forward(layer, onward, thread);
  }
  pool_.barrier();
  logits(pass, thread);
}

const KernelTable* find_kernels(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPlain: return plain_kernels();
    case InstructionSet::kAvx2: return avx2_kernels();
    case InstructionSet::kAvx512: return avx512_kernels();
  }
  return nullptr;
}

}  // namespace

std::string_view instruction_set_name(InstructionSet set) {
  constexpr std::array<std::string_view, 3> kNames{"plain", "avx2", "avx512"};
  return kNames[static_cast<std::size_t>(set)];
}

std::vector<InstructionSet> available_instruction_sets() {
  std::vector<InstructionSet> sets;
  for (const auto set : {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (find_kernels(set) != nullptr) sets.push_back(set);
  }
  return sets;
}

Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelSpec& spec, const CpuBackendOptions& options) {
  const InstructionSet set = options.instruction_set.value_or(available_instruction_sets().back());
  const KernelTable* kernels = find_kernels(set);
  if (kernels == nullptr) {
    return invalid_argument(fmt::format("this machine has no {}", instruction_set_name(set)), "cpu");
  }
  const std::uint32_t threads = options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  auto backend = std::make_unique<CpuBackend>(spec, *kernels, threads);
  LOCI_RETURN_IF_ERROR(backend->load());
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace loci
