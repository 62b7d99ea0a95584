// SPDX-License-Identifier: Apache-2.0
// Runs passes on the device. begin() plans a pass, uploads its descriptors and queues all its work. finish()
// waits for the oldest pass and returns the results, which it left in pinned memory. Between the two the host
// is free to plan and queue the next pass.
//
// A pass that reads blocks which are still arriving is issued layer by layer as they come, so begin() returns
// when the copies of the last of them are queued. Layers that came as hidden states are projected where the
// pass reads them first (cuda_hidden_projector.h).
//
// Thread-compatible: one thread begins and finishes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/compute/cuda/block_pool.h"
#include "loci/compute/cuda/cuda_captures.h"
#include "loci/compute/cuda/cuda_graphs.h"
#include "loci/compute/cuda/cuda_hidden_projector.h"
#include "loci/compute/cuda/cuda_pass_buffers.h"
#include "loci/compute/cuda/cuda_pass_layers.h"
#include "loci/compute/cuda/cuda_pass_plan.h"
#include "loci/compute/cuda/cuda_weights.h"
#include "loci/compute/cuda/products/products.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/compute/pass_arrivals.h"
#include "loci/compute/patience.h"
#include "loci/model/model_spec.h"

namespace loci::cuda {

struct CudaPassRunnerOptions {
  ElementType element = ElementType::kBFloat16;
  bool deterministic = false;
  bool graphs = true;
  bool projects = false;                           // blocks may come as hidden states (hidden_form.h)
  std::uint32_t rows_max = 0;                      // of a pass; more are a bug
  std::uint32_t spans_max = 0;                     // of a pass, for which there is room from the beginning
  std::uint32_t context_tokens = 0;                // of a sequence, at most
  std::function<void(const std::string&)> warn{};  // called with what runs slower than it could; may be null
};

class CudaPassRunner {
 public:
  // The most passes that may have begun and not ended.
  static constexpr std::uint32_t kInFlight = 2;

  // All arguments but the options must outlive the runner. Errors: kResourceExhausted naming bytes and field.
  static Result<std::unique_ptr<CudaPassRunner>> make(const ModelSpec& spec, const CudaWeights& weights,
                                                      const Device& device, BlockPool& blocks,
                                                      const CudaPassRunnerOptions& options);

  // Backend::begin() and finish(). If a pass cannot be issued (no memory, a lost device), all its spans get
  // that error as their status.
  void begin(Pass pass);
  void finish(std::vector<SpanResult>& results);
  // What the pass that finish() ended last has projected.
  const Projected& projected() const { return projected_; }
  const std::string& library() const { return products_->library(); }  // of products
  static std::uint64_t hidden_row_bytes(const ModelSpec& spec) { return std::uint64_t{spec.hidden} * 2; }

 private:
  // A pass in flight. There is room for one more than may be in flight, because the results of the last one
  // that ended are still read.
  struct Flight {
    explicit Flight(const Device& device) : taken(device), done(device) {}
    Pass pass;
    std::vector<Segment> segments;
    std::vector<std::uint8_t> poisoned;  // [span]
    PassProjections projections;
    std::uint32_t sampled_rows = 0;
    Status status;        // the error that kept it from being issued
    bool copied = false;  // its copies were queued
    // Pinned memory:
    Memory descriptors;
    Memory logits;   // f32 [wanted rows that are not sampled][vocabulary]
    Memory samples;  // u32 [spans]
    Event taken;     // comes when the hidden states that a graph kept have been copied out
    Event done;
  };

  CudaPassRunner(const ModelSpec& spec, const CudaWeights& weights, const Device& device, BlockPool& blocks,
                 const CudaPassRunnerOptions& options, std::unique_ptr<Products> products);

  PassNeeds initial_needs() const;
  void check_feeds(const Pass& pass) const;
  Status issue(Flight& flight);
  Status reserve(Flight& flight, std::uint32_t bucket);
  Status reserve_pinned(Memory& memory, std::uint64_t bytes, const char* what) const;
  PassLaunch launch_of(std::uint32_t bucket) const;
  // Launches the bucket's graph.
  void issue_graph(Flight& flight, std::uint32_t bucket);
  void issue_plainly(Flight& flight);
  // True: there is room for the inputs that a graph keeps.
  bool reserve_captures(std::uint32_t bucket);
  void copy_logits(Flight& flight, std::uint32_t begin, std::uint32_t end, const float* logits);
  void await_blocks(Flight& flight, std::uint32_t layer);

  const ModelSpec& spec_;
  const Device& device_;
  BlockPool& blocks_;
  const CudaPassRunnerOptions options_;
  PassShape shape_;
  const std::unique_ptr<Products> products_;
  PassBuffers buffers_;
  PassLayers layers_;
  std::unique_ptr<PassProjector> projector_;  // null: no block comes as hidden states
  PassPlan plan_;
  DescriptorLayout layout_;
  DecodeGraphs graphs_;
  // Graphs that keep the hidden states of their layers (PassPlan::captures()). They do so in one of two
  // places, in turn: a step begins when the one before the last has ended. The graphs of each place.
  DecodeGraphs hidden_graphs_[kInFlight];
  Stream stream_;  // computes
  CaptureOutlet outlet_;
  std::uint32_t rows_refused_ = UINT32_MAX;  // there was no room for a graph that keeps so many rows
  Patience patience_;                        // of the last pass that was issued
  std::vector<PassArrival> arrivals_;        // blocks that were not whole when the last pass was issued
  std::vector<SlotId> arrived_;              // of one layer, for spans that are not poisoned
  Projected projected_;
  std::vector<Flight> flights_;
  std::uint64_t begun_ = 0, ended_ = 0;
};

}  // namespace loci::cuda
