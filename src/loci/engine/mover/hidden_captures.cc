// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/mover/hidden_captures.h"

#include <algorithm>
#include <cstring>
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
    : layers_(backend.layers), row_bytes_(backend.hidden_row_bytes), memory_(std::move(memory)) {
  stats_.places = places;
  for (std::uint32_t place = places; place-- > 0;) free_.push_back(place);
}

void HiddenCaptures::begin(Pass& pass) {
  ++passes_;
  pieces_.clear();
  tokens_.assign(pass.spans.size(), {});
  buffers_.resize(std::max(buffers_.size(), pass.spans.size()));
  for (const BlockCopy& copy : pass.copies) forget(copy.to);
  for (std::uint32_t i = 0; i < pass.spans.size(); ++i) {
    Span& span = pass.spans[i];
    if (span.layers.end != layers_) continue;
    const BlockTable& table = span.tables.front();
    const auto end = span.position + static_cast<std::uint32_t>(span.tokens.size());
    const std::size_t before = pieces_.size();
    for (std::uint32_t at = std::max(span.position, table.write_from); at < end;) {
      const std::uint32_t row = at % kBlockTokens, count = std::min(kBlockTokens - row, end - at);
      const Piece piece{i, at - span.position, table.blocks[at / kBlockTokens], row, count, at - row};
      at += count;
      bool follows = row == 0;
      if (!follows) {
        const MutexLock lock(mutex_);
        const auto found = captures_.find(piece.slot);
        follows = found != captures_.end() && found->second.rows == row &&
                  found->second.position == piece.position && !found->second.open;
      }
      if (follows) {
        pieces_.push_back(piece);
      } else {
        forget(piece.slot);
      }
    }
    if (pieces_.size() == before) continue;
    tokens_[i] = span.tokens;
    const std::uint64_t bytes = span.tokens.size() * row_bytes_;
    buffers_[i].resize(layers_ * bytes);
    for (std::uint32_t layer = 0; layer < layers_; ++layer)
      span.capture.push_back(std::span(buffers_[i]).subspan(layer * bytes, bytes));
  }
}

void HiddenCaptures::end(std::span<const SpanResult> results) {
  for (const Piece& piece : std::exchange(pieces_, {})) {
    if (!results[piece.span].status.ok()) {
      forget(piece.slot);
      continue;
    }
    const MutexLock lock(mutex_);
    if (Capture* capture = capture_for(piece)) add(piece, *capture);
  }
}

// The block's, or a new one; null: there is none.
HiddenCaptures::Capture* HiddenCaptures::capture_for(const Piece& piece) {
  auto found = captures_.find(piece.slot);
  if (found != captures_.end() && found->second.open) return nullptr;
  if (found != captures_.end() && found->second.rows != piece.row) {
    drop(found);
    found = captures_.end();
  }
  if (found != captures_.end()) return &found->second;
  if (piece.row != 0) return nullptr;  // it was forgotten while the pass ran
  if (free_.empty()) {
    auto oldest = captures_.end();
    for (auto it = captures_.begin(); it != captures_.end(); ++it) {
      if (it->second.open || it->second.written == passes_) continue;
      if (oldest == captures_.end() || it->second.written < oldest->second.written) oldest = it;
    }
    if (oldest == captures_.end()) {
      ++stats_.unplaced_total;
      return nullptr;
    }
    ++stats_.displaced_total;
    drop(oldest);
  }
  Capture& capture = captures_[piece.slot];
  capture.place = free_.back();
  capture.position = piece.position;
  free_.pop_back();
  return &capture;
}

void HiddenCaptures::add(const Piece& piece, Capture& capture) {
  const std::vector<std::byte>& from = buffers_[piece.span];
  const std::vector<TokenId>& tokens = tokens_[piece.span];
  std::copy_n(tokens.begin() + piece.token, piece.count, capture.tokens.begin() + piece.row);
  const std::uint64_t block = kBlockTokens * row_bytes_;
  std::byte* to = memory_.data() + capture.place * layers_ * block + piece.row * row_bytes_;
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    std::memcpy(to + layer * block, from.data() + (layer * tokens.size() + piece.token) * row_bytes_,
                piece.count * row_bytes_);
  }
  capture.rows = piece.row + piece.count;
  capture.written = passes_;
}

// An open one is its reader's: it gives the place back.
void HiddenCaptures::drop(std::map<SlotId, Capture>::iterator capture) {
  if (capture->second.open) {
    capture->second.rows = 0;
    return;
  }
  free_.push_back(capture->second.place);
  captures_.erase(capture);
}

void HiddenCaptures::forget(SlotId slot) {
  const MutexLock lock(mutex_);
  if (const auto found = captures_.find(slot); found != captures_.end()) drop(found);
}

std::span<const std::byte> HiddenCaptures::open(SlotId slot, const BlockEntry& entry) {
  const MutexLock lock(mutex_);
  const auto found = captures_.find(slot);
  if (found == captures_.end()) return {};
  Capture& capture = found->second;
  const bool same = capture.rows == kBlockTokens && capture.tokens == entry.tokens &&
                    capture.position == (entry.depth - 1) * kBlockTokens;
  if (!same || capture.open) return {};
  capture.open = true;
  const std::uint64_t bytes = layers_ * kBlockTokens * row_bytes_;
  return {memory_.data() + capture.place * bytes, bytes};
}

void HiddenCaptures::close(SlotId slot) {
  const MutexLock lock(mutex_);
  const auto found = captures_.find(slot);
  LOCI_CHECK(found != captures_.end() && found->second.open, "what is closed is open");
  found->second.open = false;
  drop(found);
}

CaptureStats HiddenCaptures::stats() const {
  const MutexLock lock(mutex_);
  return stats_;
}

}  // namespace loci
