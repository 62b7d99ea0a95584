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
  Begun& begun = begun_.emplace_back(std::exchange(spare_, {}));
  {
    const MutexLock lock(mutex_);
    begun.pieces = places_.begin(pass);
  }
  begun.span_tokens.assign(pass.spans.size(), 0);
  begun.buffers.resize(std::max(begun.buffers.size(), pass.spans.size()));
  begun.token_of.clear();
  for (const Span& span : pass.spans) begun.token_of.push_back(span.token_of);
  for (const CapturePlaces::Piece& piece : begun.pieces) {
    Span& span = pass.spans[piece.span];
    if (!span.capture.empty()) continue;
    begun.span_tokens[piece.span] = span.tokens.size();
    const std::uint64_t bytes = span.tokens.size() * row_bytes_;
    std::vector<std::byte>& buffer = begun.buffers[piece.span];
    buffer.resize(layers_ * bytes);
    for (std::uint32_t layer = 0; layer < layers_; ++layer)
      span.capture.push_back(std::span(buffer).subspan(layer * bytes, bytes));
  }
}

void HiddenCaptures::end(std::span<const SpanResult> results) {
  LOCI_CHECK(!begun_.empty(), "a pass ends that has begun");
  Begun pass = std::move(begun_.front());
  begun_.pop_front();
  for (CapturePlaces::Piece& piece : pass.pieces) {
    const bool whole = results[piece.span].status.ok() && learn_token(pass, piece);
    const MutexLock lock(mutex_);
    if (!whole) {
      places_.lost(piece);
    } else if (const std::optional<std::uint32_t> place = places_.add(piece)) {
      copy(pass, piece, *place);
    }
  }
  samples_.clear();
  for (const SpanResult& result : results) samples_.push_back(result.sample);
  spare_ = std::move(pass);
}

bool HiddenCaptures::learn_token(const Begun& pass, CapturePlaces::Piece& piece) const {
  const std::optional<std::uint32_t> from = pass.token_of[piece.span];
  if (!from) return true;
  if (*from >= samples_.size() || !samples_[*from]) return false;
  piece.tokens[piece.row] = *samples_[*from];
  return true;
}

void HiddenCaptures::copy(const Begun& pass, const CapturePlaces::Piece& piece, std::uint32_t place) {
  const std::vector<std::byte>& from = pass.buffers[piece.span];
  const std::uint64_t block = kBlockTokens * row_bytes_;
  std::byte* to = memory_.data() + place * layers_ * block + piece.row * row_bytes_;
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    std::memcpy(to + layer * block,
                from.data() + (layer * pass.span_tokens[piece.span] + piece.token) * row_bytes_,
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
