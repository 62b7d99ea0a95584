// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/mover/hidden_captures.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "loci/base/check.h"

namespace loci {

Result<std::unique_ptr<HiddenCaptures>> HiddenCaptures::make(const BackendInfo& backend,
                                                             std::uint32_t places) {
  LOCI_CHECK(backend.groups.size() == 1 && places > 0, "captures are of one group");
  LOCI_ASSIGN_OR_RETURN(HostMemory memory,
                        HostMemory::map(places * backend.layers * backend.hidden_row_bytes * kBlockTokens));
  return std::unique_ptr<HiddenCaptures>(new HiddenCaptures(backend, std::move(memory), places));
}

HiddenCaptures::HiddenCaptures(const BackendInfo& backend, HostMemory memory, std::uint32_t places)
    : layers_(backend.layers),
      row_bytes_(backend.hidden_row_bytes),
      memory_(std::move(memory)),
      places_(backend.layers, places) {}

void HiddenCaptures::begin(Pass& pass) {
  {
    const MutexLock lock(mutex_);
    pieces_ = places_.begin(pass);
  }
  span_tokens_.assign(pass.spans.size(), 0);
  buffers_.resize(std::max(buffers_.size(), pass.spans.size()));
  for (const CapturePlaces::Piece& piece : pieces_) {
    Span& span = pass.spans[piece.span];
    if (!span.capture.empty()) continue;
    span_tokens_[piece.span] = span.tokens.size();
    const std::uint64_t bytes = span.tokens.size() * row_bytes_;
    std::vector<std::byte>& buffer = buffers_[piece.span];
    buffer.resize(layers_ * bytes);
    for (std::uint32_t layer = 0; layer < layers_; ++layer)
      span.capture.push_back(std::span(buffer).subspan(layer * bytes, bytes));
  }
}

void HiddenCaptures::end(std::span<const SpanResult> results) {
  for (const CapturePlaces::Piece& piece : std::exchange(pieces_, {})) {
    const MutexLock lock(mutex_);
    if (!results[piece.span].status.ok()) {
      places_.forget(piece.slot);
    } else if (const std::optional<std::uint32_t> place = places_.add(piece)) {
      copy(piece, *place);
    }
  }
}

void HiddenCaptures::copy(const CapturePlaces::Piece& piece, std::uint32_t place) {
  const std::vector<std::byte>& from = buffers_[piece.span];
  const std::uint64_t block = kBlockTokens * row_bytes_;
  std::byte* to = memory_.data() + place * layers_ * block + piece.row * row_bytes_;
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    std::memcpy(to + layer * block,
                from.data() + (layer * span_tokens_[piece.span] + piece.token) * row_bytes_,
                piece.count * row_bytes_);
  }
}

void HiddenCaptures::forget(SlotId slot) {
  const MutexLock lock(mutex_);
  places_.forget(slot);
}

std::span<const std::byte> HiddenCaptures::open(SlotId slot, const BlockEntry& entry) {
  const MutexLock lock(mutex_);
  const std::optional<std::uint32_t> place = places_.open(slot, entry);
  if (!place) return {};
  const std::uint64_t bytes = layers_ * kBlockTokens * row_bytes_;
  return {memory_.data() + *place * bytes, bytes};
}

void HiddenCaptures::close(SlotId slot) {
  const MutexLock lock(mutex_);
  places_.close(slot);
}

CaptureStats HiddenCaptures::stats() const {
  const MutexLock lock(mutex_);
  return places_.stats();
}

}  // namespace loci
