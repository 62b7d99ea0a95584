// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/cuda_hidden_projector.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "loci/base/check.h"

namespace loci::cuda {

// --- a pass's ---

void PassProjections::begin(const Device& device, Stream& stream) {
  if (used_ == times_.size())
    times_.emplace_back(Event(device, Event::Timing::kTimed), Event(device, Event::Timing::kTimed));
  stream.record(times_[used_].first);
}

void PassProjections::end(Stream& stream, std::uint64_t slices, Ticket ticket) {
  stream.record(times_[used_++].second);
  slices_ += slices;
  last_ = ticket;
}

Projected PassProjections::projected() const {
  Projected all{.slices = slices_};
  for (std::size_t i = 0; i < used_; ++i) {
    const double milliseconds = times_[i].second.milliseconds_since(times_[i].first);
    all.took += std::llround(milliseconds * static_cast<double>(kNanosPerMilli));
  }
  return all;
}

bool PassProjector::project(std::uint32_t layer, std::span<const SlotId> slots, Stream& stream,
                            PassProjections& pass) {
  bool all = true;
  claimed_.clear();
  for (const SlotId slot : slots) {
    // (Two spans may read it.)
    if (std::find(claimed_.begin(), claimed_.end(), slot) != claimed_.end()) continue;
    while (const std::optional<std::uint32_t> next = blocks_.claim_hidden(layer, slot)) {
      if (*next == layer) {
        claimed_.push_back(slot);
        break;
      }
      all = queue(*next, {&slot, 1}, stream, pass) && all;  // an earlier one, which no pass has read
      if (!all) break;
    }
  }
  return (claimed_.empty() || queue(layer, claimed_, stream, pass)) && all;
}

bool PassProjector::queue(std::uint32_t layer, std::span<const SlotId> slots, Stream& stream,
                          PassProjections& pass) {
  to_project_.clear();
  for (const SlotId slot : slots)
    to_project_.push_back({slot.value, blocks_.position(blocks_.group_of(layer), slot)});
  pass.begin(device_, stream);
  const std::size_t done = projection_->project(layer, blocks_.layer(layer), to_project_, stream);
  const Ticket ticket = blocks_.note_projections(stream);
  pass.end(stream, done, ticket);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (i < done)
      blocks_.projected(layer, slots[i], ticket);
    else
      blocks_.projection_refused(layer, slots[i], ticket);
  }
  return done == slots.size();
}

// --- movers' ---

Result<std::unique_ptr<MoverProjector>> MoverProjector::make(const ModelSpec& spec,
                                                             const CudaWeights& weights, const Device& device,
                                                             BlockPool& blocks, ElementType element) {
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<Products> products,
                        Products::make(device, element, true, kBlockTokens));
  std::unique_ptr<MoverProjector> made(new MoverProjector(device, blocks, std::move(products)));
  const std::uint64_t rows_bytes = std::uint64_t{kBlockTokens} * spec.hidden * 2;
  const std::uint64_t bytes = std::max(blocks.groups()[0].layer_slice_bytes, rows_bytes);
  const MutexLock lock(made->mutex_);
  LOCI_ASSIGN_OR_RETURN(made->projection_, HiddenProjection::make(spec, weights, device, *made->products_,
                                                                  element, kBlockTokens));
  constexpr const char* kWhat = "what projecting hidden states works in";
  LOCI_ASSIGN_OR_RETURN(made->slice_, Memory::allocate(device, MemoryKind::kDevice, bytes, kWhat));
  LOCI_ASSIGN_OR_RETURN(made->staged_, Memory::allocate(device, MemoryKind::kPinned, bytes, kWhat));
  return made;
}

void MoverProjector::project_up_to(SlotId slot, std::uint32_t layer) {
  while (const std::optional<std::uint32_t> next = blocks_.claim_hidden(layer, slot)) {
    const HiddenBlock block{slot.value, blocks_.position(blocks_.group_of(layer), slot)};
    const std::shared_ptr<Event> arrival = blocks_.arrival_of(*next, slot);
    {
      const MutexLock lock(mutex_);
      if (arrival != nullptr) stream_.wait(*arrival);
      projection_->project(*next, blocks_.layer(*next), {&block, 1}, stream_);
      finish();
    }
    blocks_.projected(*next, slot, 0);
  }
}

void MoverProjector::project(std::uint32_t layer, std::uint32_t position, std::span<const std::byte> rows,
                             std::span<std::byte> slice) {
  LayerState state = blocks_.layer(layer);
  state.slot_stride = slice.size();
  const HiddenBlock block{0, position};
  const MutexLock lock(mutex_);
  LOCI_CHECK(rows.size() <= staged_.size() && slice.size() <= staged_.size(), "a layer of a block");
  state.base = slice_.data();
  std::memcpy(staged_.data(), rows.data(), rows.size());
  stream_.copy(slice_.data(), staged_.data(), rows.size());
  projection_->project(layer, state, {&block, 1}, stream_);
  stream_.copy(staged_.data(), slice_.data(), slice.size());
  finish();
  std::memcpy(slice.data(), staged_.data(), slice.size());
}

void MoverProjector::finish() {
  stream_.synchronize();
  if (Status refused = stream_.take_failure(); !refused.ok())
    device_.note(
        Status(StatusCode::kUnavailable, "the device is lost: it refused to project: " + refused.message()));
}

}  // namespace loci::cuda
