// SPDX-License-Identifier: Apache-2.0
// Brings captured hidden states (Span::capture) to the host, on a stream of their own, so that no kernel
// waits for the link. The device copies straight into the spans' buffers; no thread of the host touches a
// row.
//
// A pass that is issued kernel by kernel copies the input of a layer's first product while the layer runs,
// before the next norm overwrites it. A graph keeps the inputs of all layers (PassLaunch::inputs), which are
// copied after it, while the next step runs. That one keeps its own elsewhere.
//
// Thread-compatible; used by the thread that begins and finishes passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "loci/compute/cuda/cuda_pass_plan.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/compute/pass.h"

namespace loci::cuda {

class CaptureOutlet {
 public:
  // `row_bytes`: of one token in one layer.
  CaptureOutlet(const Device& device, std::uint64_t row_bytes)
      : row_bytes_(row_bytes), stream_(device), made_(device), taken_(device) {}

  // Copies one layer's rows of the spans that want them. `input`: [row][row_bytes], as `segments` have rows.
  void copy_layer(const Pass& pass, std::span<const Segment> segments, std::uint32_t layer,
                  const std::byte* input, Stream& compute);
  // Makes `compute` wait for copies of the last layer, whose input it is about to overwrite.
  void before_overwrite(Stream& compute);

  // Copies all layers' rows of the spans that want them, behind what `compute` has queued, and records
  // `taken` behind the copies. `inputs`: [layer][rows][row_bytes].
  void copy_all(const Pass& pass, std::span<const Segment> segments, const std::byte* inputs,
                std::uint32_t layers, std::uint32_t rows, Stream& compute, Event& taken);

 private:
  void add_pieces(const Pass& pass, std::span<const Segment> segments, std::uint32_t layer,
                  const std::byte* input);

  const std::uint64_t row_bytes_;
  Stream stream_;
  Event made_, taken_;
  bool taking_ = false;
  std::vector<CopyPiece> pieces_;
};

}  // namespace loci::cuda
