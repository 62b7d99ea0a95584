// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/mover/capture_places.h"

#include <algorithm>

#include "loci/base/check.h"

namespace loci {
namespace {

constexpr std::uint64_t kCaptureBytesMin = std::uint64_t{64} << 20;

}  // namespace

std::uint32_t capture_places(const CoreConfig& core) {
  if (core.hidden.disk_blocks == 0) return 0;
  const CoreGroup& group = core.groups.front();
  const std::uint64_t most = std::max(group.block_count * group.block_bytes / 8, kCaptureBytesMin);
  const std::uint64_t wanted = 4 * (core.max_batch_tokens / kBlockTokens) + core.max_running;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(most / core.hidden.block_bytes, 1, wanted));
}

CapturePlaces::CapturePlaces(std::uint32_t layers, std::uint32_t places, const HiddenShare& share)
    : layers_(layers), share_(share) {
  stats_.places = places;
  for (std::uint32_t place = places; place-- > 0;) free_.push_back(place);
}

// Its rows are the block's first, or stand behind those that are captured, or that passes in flight bring.
// (Or they replace the last of these, which a request has computed ahead of its end.)
bool CapturePlaces::follows(const Piece& piece) const {
  if (piece.row == 0) return true;
  if (const auto coming = coming_.find(piece.slot); coming != coming_.end())
    return coming->second.rows >= piece.row && coming->second.position == piece.position;
  const auto found = captures_.find(piece.slot);
  return found != captures_.end() && found->second.rows >= piece.row &&
         found->second.position == piece.position && !found->second.open;
}

bool CapturePlaces::ended(const Piece& piece) {
  const auto coming = coming_.find(piece.slot);
  LOCI_CHECK(coming != coming_.end(), "what ends has begun");
  const bool counts = piece.pass >= coming->second.void_before;
  if (--coming->second.pieces == 0) coming_.erase(coming);
  return counts;
}

std::vector<CapturePlaces::Piece> CapturePlaces::begin(const Pass& pass) {
  ++passes_;
  std::vector<Piece> pieces;
  for (const BlockCopy& copy : pass.copies) forget(copy.to);
  for (std::uint32_t i = 0; i < pass.spans.size(); ++i) {
    const Span& span = pass.spans[i];
    if (span.layers.end != layers_) continue;
    const BlockTable& table = span.tables.front();
    const auto end = span.position + static_cast<std::uint32_t>(span.tokens.size());
    for (std::uint32_t at = std::max(span.position, table.write_from); at < end;) {
      const std::uint32_t row = at % kBlockTokens, count = std::min(kBlockTokens - row, end - at);
      Piece piece{i, at - span.position, table.blocks[at / kBlockTokens], row, count, at - row, {}, passes_};
      at += count;
      if (!share_.holds(piece.position / kBlockTokens) || !follows(piece)) {
        forget(piece.slot);
        continue;
      }
      std::copy_n(span.tokens.begin() + piece.token, count, piece.tokens.begin() + row);
      Coming& coming = coming_[piece.slot];
      ++coming.pieces;
      coming.rows = row + count;
      coming.position = piece.position;
      pieces.push_back(piece);
    }
  }
  return pieces;
}

std::optional<std::uint32_t> CapturePlaces::add(const Piece& piece) {
  if (!ended(piece)) return std::nullopt;
  Capture* const capture = capture_for(piece);
  if (capture == nullptr) return std::nullopt;
  std::copy_n(piece.tokens.begin() + piece.row, piece.count, capture->tokens.begin() + piece.row);
  capture->rows = piece.row + piece.count;
  capture->written = piece.pass;
  return capture->place;
}

// The block's, or a new one; null: there is none.
CapturePlaces::Capture* CapturePlaces::capture_for(const Piece& piece) {
  auto found = captures_.find(piece.slot);
  if (found != captures_.end() && found->second.open) return nullptr;
  if (found != captures_.end() &&
      (piece.row == 0 || found->second.rows < piece.row || found->second.position != piece.position)) {
    drop(found);
    found = captures_.end();
  }
  if (found != captures_.end()) return &found->second;
  if (piece.row != 0) return nullptr;  // it was forgotten while the pass ran
  if (free_.empty()) {
    auto oldest = captures_.end();
    for (auto it = captures_.begin(); it != captures_.end(); ++it) {
      if (it->second.open || it->second.written == piece.pass) continue;
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

// An open one is its reader's: it gives the place back.
void CapturePlaces::drop(std::map<SlotId, Capture>::iterator capture) {
  if (capture->second.open) {
    capture->second.rows = 0;
    return;
  }
  free_.push_back(capture->second.place);
  captures_.erase(capture);
}

void CapturePlaces::lost(const Piece& piece) {
  ended(piece);
  forget(piece.slot);
}

void CapturePlaces::forget(SlotId slot) {
  if (const auto coming = coming_.find(slot); coming != coming_.end()) {
    coming->second.rows = 0;
    coming->second.void_before = passes_ + 1;
  }
  if (const auto found = captures_.find(slot); found != captures_.end()) drop(found);
}

std::optional<std::uint32_t> CapturePlaces::open(SlotId slot, const BlockEntry& entry) {
  const auto found = captures_.find(slot);
  if (found == captures_.end()) return std::nullopt;
  Capture& capture = found->second;
  const bool same = capture.rows == kBlockTokens && capture.tokens == entry.tokens &&
                    capture.position == (entry.depth - 1) * kBlockTokens;
  if (!same || capture.open) return std::nullopt;
  capture.open = true;
  return capture.place;
}

void CapturePlaces::close(SlotId slot) {
  const auto found = captures_.find(slot);
  LOCI_CHECK(found != captures_.end() && found->second.open, "what is closed is open");
  found->second.open = false;
  drop(found);
}

}  // namespace loci
