// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/cuda_pass_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "loci/base/check.h"

namespace loci::cuda {

namespace {

constexpr const char* kDescriptors = "a pass's descriptors (pinned)";

PassShape pass_shape(const ModelSpec& spec, const Device& device, const BlockPool& blocks,
                     const CudaPassRunnerOptions& options) {
  PassShape shape;
  shape.layers = spec.layer_count();
  shape.vocabulary = spec.vocabulary;
  shape.context_tokens = options.context_tokens;
  shape.position_offset = spec.position_offset;
  shape.groups = blocks.groups();
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    shape.group_of.push_back(blocks.group_of(layer));
    shape.windows.push_back(spec.layers[layer].window);
  }
  shape.attention.heads = spec.heads;
  shape.attention.kv_heads = spec.kv_heads;
  shape.attention.head_dim = spec.head_dim;
  shape.attention.multiprocessors = device.properties().multiprocessors;
  shape.attention.deterministic = options.deterministic;
  shape.attention.warpgroups =
      attention_has_warpgroups(device.properties(), spec.head_dim, options.deterministic);
  return shape;
}

}  // namespace

CudaPassRunner::CudaPassRunner(const ModelSpec& spec, const CudaWeights& weights, const Device& device,
                               BlockPool& blocks, const CudaPassRunnerOptions& options,
                               std::unique_ptr<Products> products)
    : spec_(spec),
      device_(device),
      blocks_(blocks),
      options_(options),
      shape_(pass_shape(spec, device, blocks, options)),
      products_(std::move(products)),
      buffers_(spec, weights, device),
      layers_(spec, weights, *products_, buffers_, options.element, options.deterministic),
      plan_(shape_),
      graphs_(options.graphs ? std::min(options.spans_max, options.rows_max) : 0),
      hidden_graphs_{DecodeGraphs(options.graphs ? std::min(options.spans_max, options.rows_max) : 0),
                     DecodeGraphs(options.graphs ? std::min(options.spans_max, options.rows_max) : 0)},
      stream_(device),
      outlet_(device, hidden_row_bytes(spec)) {
  for (std::uint32_t i = 0; i < kInFlight + 1; ++i) flights_.emplace_back(device);
}

Result<std::unique_ptr<CudaPassRunner>> CudaPassRunner::make(const ModelSpec& spec,
                                                             const CudaWeights& weights, const Device& device,
                                                             BlockPool& blocks,
                                                             const CudaPassRunnerOptions& options) {
  const std::uint32_t product_rows =
      std::max(options.rows_max * std::max(1u, spec.expert_uses), kBlockTokens);
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<Products> products,
                        Products::make(device, options.element, options.deterministic, product_rows));
  std::unique_ptr<CudaPassRunner> runner(
      new CudaPassRunner(spec, weights, device, blocks, options, std::move(products)));
  if (options.projects) {
    LOCI_ASSIGN_OR_RETURN(
        std::unique_ptr<HiddenProjection> projection,
        HiddenProjection::make(spec, weights, device, *runner->products_, options.element, options.rows_max));
    runner->projector_ = std::make_unique<PassProjector>(device, blocks, std::move(projection));
  }
  const PassNeeds needs = runner->initial_needs();
  LOCI_RETURN_IF_ERROR(runner->buffers_.reserve(needs));
  for (Flight& flight : runner->flights_) {
    LOCI_RETURN_IF_ERROR(runner->reserve_pinned(flight.descriptors, needs.descriptor_bytes, kDescriptors));
    LOCI_RETURN_IF_ERROR(
        runner->reserve_pinned(flight.samples, needs.spans * sizeof(std::uint32_t), "samples (pinned)"));
  }
  return runner;
}

// Enough for what passes are as a rule, so that nothing moves later.
PassNeeds CudaPassRunner::initial_needs() const {
  PassNeeds needs;
  needs.rows = options_.rows_max;
  needs.spans = options_.spans_max;
  needs.logits_rows = needs.sampled_rows = std::min(options_.spans_max, options_.rows_max);
  const std::uint64_t table =
      std::uint64_t{options_.spans_max} * (options_.context_tokens / kBlockTokens + 1);
  constexpr std::uint64_t kTablesMax = 4u << 20;
  const std::uint64_t groups = shape_.groups.size(), spans = options_.spans_max;
  constexpr std::uint64_t kAlignments = 1024;
  needs.descriptor_bytes = (16 + 4 * groups) * std::max(options_.rows_max, options_.spans_max) +
                           (sizeof(SampleRow) + 2 * groups * sizeof(AttentionRun)) * spans +
                           4 * groups * std::min(table, kTablesMax) + kAlignments;
  // Attention of whole passes and of the last layer's rows.
  const AttentionLimits limits = attention_limits(
      shape_.attention, 2 * std::min(options_.spans_max, options_.rows_max), options_.rows_max);
  needs.partial_values_bytes = limits.values_bytes;
  needs.partial_statistics_bytes = limits.statistics_bytes;
  needs.descriptor_bytes += 2 * shape_.groups.size() *
                            ((limits.warpgroups.tasks + limits.others.tasks) * sizeof(AttentionTask) +
                             limits.merges() * sizeof(AttentionMerge));
  return needs;
}

// --- blocks that arrive ---

void CudaPassRunner::await_blocks(Flight& flight, std::uint32_t layer) {
  for (const PassArrival& arrival : arrivals_) {
    if (!arrival.awaited_by(flight.pass, layer, blocks_.group_of(layer))) continue;
    if (flight.poisoned[arrival.span] == 0 &&
        !blocks_.wait_layer(layer, {&arrival.slot, 1}, stream_, patience_)) {
      flight.poisoned[arrival.span] = 1;
    }
  }
  if (projector_ == nullptr) return;
  // Only now: whoever else needs a layer that is claimed would wait as long as this pass for another block.
  arrived_.clear();
  for (const PassArrival& arrival : arrivals_) {
    if (arrival.awaited_by(flight.pass, layer, blocks_.group_of(layer)) &&
        flight.poisoned[arrival.span] == 0) {
      arrived_.push_back(arrival.slot);
    }
  }
  projector_->project(layer, arrived_, stream_, flight.projections);
}

// --- issuing ---

void CudaPassRunner::begin(Pass pass) {
  LOCI_CHECK(begun_ - ended_ < kInFlight, "not more passes begin than may be on their way");
  Flight& flight = flights_[begun_++ % flights_.size()];
  flight.pass = std::move(pass);
  flight.projections.clear();
  flight.poisoned.assign(flight.pass.spans.size(), 0);
  flight.copied = false;
  flight.status = issue(flight);
  if (!flight.status.ok() && !flight.copied) {
    for (const BlockCopy& copy : flight.pass.copies) {
      blocks_.begin_fill(copy.group, copy.to);
      blocks_.fill_failed(copy.group, copy.to);
    }
  }
  stream_.record(flight.done);
}

void CudaPassRunner::check_feeds(const Pass& pass) const {
  for (const Span& span : pass.spans) {
    if (!span.token_of) continue;
    LOCI_CHECK(begun_ > 1, "a pass begun before");
    const std::vector<Span>& before = flights_[(begun_ - 2) % flights_.size()].pass.spans;
    LOCI_CHECK(*span.token_of < before.size() && before[*span.token_of].sampling.has_value(),
               "a span of the pass before samples what is fed");
  }
}

Status CudaPassRunner::issue(Flight& flight) {
  LOCI_RETURN_IF_ERROR(device_.status());
  std::vector<std::uint32_t> slots;
  for (std::uint32_t g = 0; g < blocks_.groups().size(); ++g) slots.push_back(blocks_.count(g));
  plan_.make(flight.pass, slots);
  LOCI_CHECK(plan_.rows() <= options_.rows_max, "a pass has no more rows than the backend was made for");
  flight.segments = plan_.segments();
  flight.sampled_rows = plan_.sampled_rows();
  if (plan_.rows() == 0 && flight.pass.copies.empty()) return {};
  check_feeds(flight.pass);
  // (What is copied has arrived, or its fill has failed: it is not waited for in vain.)
  mark_whole_blocks(
      flight.pass, blocks_,
      [&](SlotId slot, std::uint32_t of) {
        return blocks_.wait_layer(of, {&slot, 1}, stream_) &&
               (projector_ == nullptr || projector_->project(of, {&slot, 1}, stream_, flight.projections));
      },
      arrivals_);
  patience_ = Patience(flight.pass.patience);
  std::uint32_t bucket = plan_.is_decode_step() && arrivals_.empty() ? graphs_.bucket_for(plan_.rows()) : 0;
  if (bucket > 0 && plan_.captures() && !reserve_captures(bucket)) bucket = 0;
  LOCI_RETURN_IF_ERROR(reserve(flight, bucket));
  plan_.write(layout_, flight.descriptors.data());
  stream_.copy(buffers_.descriptors.data(), flight.descriptors.data(), plan_.descriptor_bytes());
  if (bucket > 0) {
    issue_graph(flight, bucket);
  } else {
    issue_plainly(flight);
  }
  if (plan_.sampled_rows() > 0) {
    stream_.copy(flight.samples.data(), buffers_.samples.data(),
                 flight.pass.spans.size() * sizeof(std::uint32_t));
  }
  return stream_.take_failure();
}

Status CudaPassRunner::reserve_pinned(Memory& memory, std::uint64_t bytes, const char* what) const {
  if (bytes <= memory.size()) return {};
  // Freeing and taking pinned memory waits for the device: what grows, grows by doubling.
  const std::uint64_t wanted = std::max(bytes, 2 * memory.size());
  memory = Memory();
  Result<Memory> larger = Memory::allocate(device_, MemoryKind::kPinned, wanted, what);
  if (!larger.ok() && wanted > bytes) larger = Memory::allocate(device_, MemoryKind::kPinned, bytes, what);
  LOCI_ASSIGN_OR_RETURN(memory, std::move(larger));
  return {};
}

Status CudaPassRunner::reserve(Flight& flight, std::uint32_t bucket) {
  plan_.lay_out(bucket, layout_);
  PassNeeds needs;
  needs.rows = std::max(plan_.rows(), bucket);
  needs.spans = static_cast<std::uint32_t>(flight.pass.spans.size());
  needs.sampled_rows = std::max(plan_.sampled_rows(), bucket);
  needs.logits_rows = std::max({plan_.sampled_rows(), bucket, plan_.wanted_rows() > 0 ? 1u : 0u});
  needs.descriptor_bytes = plan_.descriptor_bytes();
  needs.partial_values_bytes = plan_.partial_values_bytes();
  needs.partial_statistics_bytes = plan_.partial_statistics_bytes();
  LOCI_RETURN_IF_ERROR(buffers_.reserve(needs));
  LOCI_RETURN_IF_ERROR(reserve_pinned(flight.descriptors, plan_.descriptor_bytes(), kDescriptors));
  LOCI_RETURN_IF_ERROR(
      reserve_pinned(flight.samples, needs.spans * sizeof(std::uint32_t), "samples (pinned)"));
  const std::uint64_t logits_rows = plan_.wanted_rows() - plan_.sampled_rows();
  return reserve_pinned(flight.logits, logits_rows * spec_.vocabulary * sizeof(float), "logits (pinned)");
}

PassLaunch CudaPassRunner::launch_of(std::uint32_t bucket) const {
  PassLaunch launch;
  launch.layout = &layout_;
  launch.group_of = shape_.group_of;
  launch.wanted_rows = bucket > 0 ? bucket : plan_.wanted_rows();
  launch.samples_max = bucket > 0 ? bucket : plan_.sampled_rows();
  launch.feeds = bucket > 0 || plan_.feeds();
  for (std::uint32_t layer = 0; layer < spec_.layer_count(); ++layer) {
    launch.rows_in_layer.push_back(bucket > 0 ? bucket : plan_.rows_in_layer(layer));
    launch.rows_after.push_back(bucket > 0 ? bucket : plan_.rows_after(layer));
    launch.attention_of.push_back(plan_.attention_of(layer));
    launch.states.push_back(blocks_.layer(layer));
  }
  for (std::uint32_t g = 0; g < shape_.groups.size(); ++g) launch.copies[g] = plan_.copies(g);
  return launch;
}

bool CudaPassRunner::reserve_captures(std::uint32_t bucket) {
  // For few sizes: whenever a buffer grows all graphs are captured anew.
  constexpr std::uint32_t kRowsMin = 16;
  const std::uint32_t rows = std::bit_ceil(std::max(bucket, kRowsMin));
  if (rows >= rows_refused_) return false;
  const Status room = buffers_.reserve_inputs(rows);
  if (room.ok()) return true;
  rows_refused_ = rows;  // for good: to ask again in each step would wait for the device
  if (options_.warn) {
    options_.warn(fmt::format(
        "from now on decode steps that capture hidden states for {} requests and more run without "
        "a graph: {}",
        rows > kRowsMin ? rows / 2 + 1 : 1, room.to_string()));
  }
  return false;
}

void CudaPassRunner::issue_graph(Flight& flight, std::uint32_t bucket) {
  PassLaunch launch = launch_of(bucket);
  const std::size_t turn = begun_ % kInFlight;
  if (plan_.captures()) launch.inputs = buffers_.inputs[turn].data();
  DecodeGraphs& graphs = plan_.captures() ? hidden_graphs_[turn] : graphs_;
  const Status refused = graphs.launch(bucket, buffers_.generation(), stream_,
                                       [&] { layers_.issue(launch, {}, bucket, stream_); });
  if (!refused.ok() && options_.warn) {
    options_.warn(
        fmt::format("decode steps of up to {} requests run without a graph: {}", bucket, refused.message()));
  }
  if (plan_.captures()) {
    outlet_.copy_all(flight.pass, flight.segments, launch.inputs, spec_.layer_count(), bucket, stream_,
                     flight.taken);
  }
  copy_logits(flight, 0, plan_.wanted_rows(), buffers_.logits.as<float>());
}

void CudaPassRunner::issue_plainly(Flight& flight) {
  PassHooks hooks;
  Status older = stream_.take_failure();  // a projection before this pass may have left it
  hooks.copied = [&] {
    Status refused = stream_.take_failure();
    flight.copied = refused.ok();
    stream_.note_failure(std::move(older));
    stream_.note_failure(std::move(refused));
  };
  hooks.await = [&](std::uint32_t layer) { await_blocks(flight, layer); };
  hooks.logits = [&](std::uint32_t begin, std::uint32_t end, const float* logits) {
    copy_logits(flight, begin, end, logits);
  };
  if (plan_.captures()) {
    hooks.hidden = [&](std::uint32_t layer, const std::byte* normed) {
      outlet_.copy_layer(flight.pass, flight.segments, layer, normed, stream_);
    };
    hooks.overwrite = [&] { outlet_.before_overwrite(stream_); };
  }
  const std::uint64_t logits_rows = buffers_.logits.size() / (sizeof(float) * spec_.vocabulary);
  layers_.issue(launch_of(0), hooks, static_cast<std::uint32_t>(logits_rows), stream_);
  if (hooks.overwrite) hooks.overwrite();
}

void CudaPassRunner::copy_logits(Flight& flight, std::uint32_t begin, std::uint32_t end,
                                 const float* logits) {
  const std::uint32_t first = std::max(begin, flight.sampled_rows);
  if (first >= end) return;
  const std::uint64_t vocabulary = spec_.vocabulary;
  stream_.copy(flight.logits.as<float>() + (first - flight.sampled_rows) * vocabulary,
               logits + (first - begin) * vocabulary, (end - first) * vocabulary * sizeof(float));
}

// --- ending ---

void CudaPassRunner::finish(std::vector<SpanResult>& results) {
  LOCI_CHECK(begun_ > ended_, "a pass has begun");
  Flight& flight = flights_[ended_++ % flights_.size()];
  flight.done.synchronize();
  flight.taken.synchronize();
  blocks_.projections_done(flight.projections.last());
  projected_ = {};
  Status status = flight.status;
  if (status.ok()) status = device_.status();
  results.assign(flight.pass.spans.size(), {});
  if (!status.ok()) {
    for (SpanResult& result : results) result.status = status;
    return;
  }
  projected_ = flight.projections.projected();
  for (const Segment& segment : flight.segments) {
    SpanResult& result = results[segment.span];
    if (segment.sampled) {
      result.sample = TokenId(flight.samples.as<std::uint32_t>()[segment.span]);
    } else if (segment.wanted) {
      result.logits = {
          flight.logits.as<float>() + std::uint64_t{segment.row - flight.sampled_rows} * spec_.vocabulary,
          std::size_t{segment.count} * spec_.vocabulary};
    }
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (flight.poisoned[i] == 0) continue;
    results[i] = {data_loss("a block that the span reads did not arrive"), {}, {}};
  }
}

}  // namespace loci::cuda
