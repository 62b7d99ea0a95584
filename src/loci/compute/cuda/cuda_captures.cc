// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/cuda_captures.h"

#include <utility>

#include "loci/base/check.h"

namespace loci::cuda {

// Rows that lie together on both sides are one piece.
void CaptureOutlet::add_pieces(const Pass& pass, std::span<const Segment> segments, std::uint32_t layer,
                               const std::byte* input) {
  for (const Segment& segment : segments) {
    const Span& span = pass.spans[segment.span];
    if (span.capture.empty() || layer >= segment.end_layer) continue;
    LOCI_CHECK(span.capture[layer].size() == row_bytes_ * span.tokens.size(),
               "a capture buffer has a row for each token");
    std::byte* to = span.capture[layer].data() + segment.token * row_bytes_;
    const std::byte* from = input + segment.row * row_bytes_;
    const std::uint64_t bytes = segment.count * row_bytes_;
    if (!pieces_.empty()) {
      CopyPiece& last = pieces_.back();
      if (static_cast<std::byte*>(last.to) + last.bytes == to &&
          static_cast<const std::byte*>(last.from) + last.bytes == from) {
        last.bytes += bytes;
        continue;
      }
    }
    pieces_.push_back({to, from, bytes});
  }
}

void CaptureOutlet::copy_layer(const Pass& pass, std::span<const Segment> segments, std::uint32_t layer,
                               const std::byte* input, Stream& compute) {
  pieces_.clear();
  add_pieces(pass, segments, layer, input);
  if (pieces_.empty()) return;
  compute.record(made_);
  stream_.wait(made_);
  stream_.copy_pieces(pieces_);
  stream_.record(taken_);
  taking_ = true;
}

void CaptureOutlet::before_overwrite(Stream& compute) {
  if (std::exchange(taking_, false)) compute.wait(taken_);
}

void CaptureOutlet::copy_all(const Pass& pass, std::span<const Segment> segments, const std::byte* inputs,
                             std::uint32_t layers, std::uint32_t rows, Stream& compute, Event& taken) {
  pieces_.clear();
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    add_pieces(pass, segments, layer, inputs + std::uint64_t{layer} * rows * row_bytes_);
  compute.record(made_);
  stream_.wait(made_);
  stream_.copy_pieces(pieces_);
  stream_.record(taken);
}

}  // namespace loci::cuda
