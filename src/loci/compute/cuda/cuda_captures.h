// SPDX-License-Identifier: Apache-2.0
// Brings captured hidden states (Span::capture) to the host, on a stream of their own, so that no kernel
// waits for the link. The device copies straight into the spans' buffers; no thread of the host touches a
// row.
//
// A pass that is issued kernel by kernel copies the input of a layer's first product while the layer runs,
// before the next norm overwrites it. A graph keeps the inputs of all layers (PassLaunch::inputs); after it
// they are copied inside the device, so that the next step may begin, and from there to the host.
//
// Thread-compatible; used by the thread that begins and finishes passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "loci/base/status.h"
#include "loci/compute/cuda/cuda_pass_plan.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/compute/pass.h"

namespace loci::cuda {

// Of one pass in flight.
struct PassCaptures {
  explicit PassCaptures(const Device& device) : taken(device) {}
  Memory kept;  // of the device: what a graph has kept, on its way to the host
  Event taken;  // recorded when it has come
};

class CaptureOutlet {
 public:
  // `row_bytes`: of one token in one layer.
  CaptureOutlet(const Device& device, std::uint64_t row_bytes)
      : device_(device), row_bytes_(row_bytes), stream_(device), made_(device), taken_(device) {}

  // Copies one layer's rows of the spans that want them. `input`: [row][row_bytes], as `segments` have rows.
  void copy_layer(const Pass& pass, std::span<const Segment> segments, std::uint32_t layer,
                  const std::byte* input, Stream& compute);
  // Makes `compute` wait for copies of the last layer, whose input it is about to overwrite.
  void before_overwrite(Stream& compute);

  // Room in `captures.kept`. Errors: kResourceExhausted.
  Status reserve(PassCaptures& captures, std::uint64_t bytes) const;
  // Copies all layers' rows. `inputs`: [layer][rows][row_bytes], `bytes` in all. They may be overwritten, in
  // the order of `compute`, when this returns.
  void copy_all(const Pass& pass, std::span<const Segment> segments, const std::byte* inputs,
                std::uint32_t layers, std::uint32_t rows, PassCaptures& captures, Stream& compute);

 private:
  void add_pieces(const Pass& pass, std::span<const Segment> segments, std::uint32_t layer,
                  const std::byte* input);

  const Device& device_;
  const std::uint64_t row_bytes_;
  Stream stream_;
  Event made_, taken_;
  bool taking_ = false;
  std::vector<CopyPiece> pieces_;
};

}  // namespace loci::cuda
