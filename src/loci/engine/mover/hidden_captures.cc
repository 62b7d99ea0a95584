// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/mover/hidden_captures.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "loci/base/check.h"

namespace loci {
namespace {

// Of a pass, and of the one that is begun behind it: pinned memory is dear to take.
constexpr std::size_t kSparesKept = 2;

}  // namespace

Result<std::unique_ptr<HiddenCaptures>> HiddenCaptures::make(Backend& backend,
                                                             HiddenCapturesOptions options) {
  const BackendInfo& info = backend.info();
  LOCI_CHECK(info.groups.size() == 1 && options.places > 0, "captures are of one group");
  LOCI_ASSIGN_OR_RETURN(HostMemory memory,
                        HostMemory::map(options.places * info.layers * info.hidden_row_bytes * kBlockTokens));
  return std::unique_ptr<HiddenCaptures>(new HiddenCaptures(backend, std::move(memory), std::move(options)));
}

HiddenCaptures::HiddenCaptures(Backend& backend, HostMemory memory, HiddenCapturesOptions options)
    : backend_(backend),
      options_(std::move(options)),
      layers_(backend.info().layers),
      row_bytes_(backend.info().hidden_row_bytes),
      memory_(std::move(memory)),
      places_(layers_, options_.places, options_.share),
      thread_([this] { run(); }) {}

HiddenCaptures::~HiddenCaptures() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

// --- passes ---

void HiddenCaptures::follow(const HiddenShare& share) {
  const MutexLock lock(mutex_);
  places_.follow(share);
}

void HiddenCaptures::begin(Pass& pass) {
  Begun begun;
  {
    const MutexLock lock(mutex_);
    begun.pieces = places_.begin(pass);
  }
  begun.first_row.assign(pass.spans.size(), UINT64_MAX);
  for (const Span& span : pass.spans) begun.token_of.push_back(span.token_of);
  for (const CapturePlaces::Piece& piece : begun.pieces) {
    std::uint64_t& first = begun.first_row[piece.span];
    if (first == UINT64_MAX)
      first = std::exchange(begun.rows, begun.rows + pass.spans[piece.span].tokens.size());
  }
  const bool room = make_room(begun);
  begun.whole.assign(begun.pieces.size(), room);
  for (std::size_t i = 0; room && i < pass.spans.size(); ++i) {
    if (begun.first_row[i] == UINT64_MAX) continue;
    for (std::uint32_t layer = 0; layer < layers_; ++layer) {
      std::byte* rows = begun.buffer.data() + (layer * begun.rows + begun.first_row[i]) * row_bytes_;
      pass.spans[i].capture.emplace_back(rows, pass.spans[i].tokens.size() * row_bytes_);
    }
  }
  begun_.push_back(std::move(begun));
}

// Grows by doubling, up to a bound.
bool HiddenCaptures::make_room(Begun& begun) {
  const std::uint64_t bytes = layers_ * begun.rows * row_bytes_;
  if (bytes == 0) return true;
  {
    const MutexLock lock(mutex_);
    begun.buffer = take_spare(bytes);
    ++in_use_;
  }
  if (bytes <= begun.buffer.size()) return true;
  const std::uint64_t wanted = std::max(bytes, std::min(2 * begun.buffer.size(), options_.spare_bytes));
  begun.buffer = HostMemory();
  Result<HostMemory> larger = backend_.allocate_host(wanted);
  if (!larger.ok() && wanted > bytes) larger = backend_.allocate_host(bytes);
  if (larger.ok()) {
    begun.buffer = std::move(*larger);
    return true;
  }
  const MutexLock lock(mutex_);
  --in_use_;
  return false;
}

// The smallest with room for them; if all are smaller, the largest, which then grows.
HostMemory HiddenCaptures::take_spare(std::uint64_t bytes) {
  if (spare_.empty()) return {};
  const auto suits_better = [bytes](const HostMemory& a, const HostMemory& b) {
    const bool a_has_room = a.size() >= bytes, b_has_room = b.size() >= bytes;
    if (a_has_room != b_has_room) return a_has_room;
    return a_has_room ? a.size() < b.size() : a.size() > b.size();
  };
  const auto best = std::min_element(spare_.begin(), spare_.end(), suits_better);
  HostMemory taken = std::move(*best);
  spare_.erase(best);
  spare_bytes_ -= taken.size();
  return taken;
}

// Those go that were given back first: a buffer of a size that passes have no longer is never the last.
std::vector<HostMemory> HiddenCaptures::give_back(HostMemory buffer) {
  std::vector<HostMemory> freed;
  if (buffer.size() == 0) return freed;
  --in_use_;
  spare_bytes_ += buffer.size();
  spare_.push_back(std::move(buffer));
  const std::size_t kept = ended_.empty() ? std::max(in_use_, kSparesKept) : spare_.size();
  while (spare_.size() > kept || (spare_.size() > 1 && spare_bytes_ > options_.spare_bytes)) {
    spare_bytes_ -= spare_.front().size();
    freed.push_back(std::move(spare_.front()));
    spare_.erase(spare_.begin());
  }
  return freed;
}

void HiddenCaptures::end(std::span<const SpanResult> results) {
  LOCI_CHECK(!begun_.empty(), "a pass ends that has begun");
  Begun pass = std::move(begun_.front());
  begun_.pop_front();
  for (std::size_t i = 0; i < pass.pieces.size(); ++i) {
    const bool ok = results[pass.pieces[i].span].status.ok() && learn_token(pass, pass.pieces[i]);
    pass.whole[i] = pass.whole[i] && ok;
  }
  samples_.clear();
  for (const SpanResult& result : results) samples_.push_back(result.sample);
  if (pass.pieces.empty()) return;
  std::vector<HostMemory> freed;
  {
    const MutexLock lock(mutex_);
    if (waiting_rows_ > 0 && waiting_rows_ + pass.rows > options_.waiting_rows) {
      // At once: a place in the queue for each pass that is dropped would have no bound.
      for (const CapturePlaces::Piece& piece : pass.pieces) places_.lost(piece);
      freed = give_back(std::move(pass.buffer));
      return;
    }
    waiting_rows_ += pass.rows;
    ended_.push_back(std::move(pass));
    ++ended_total_;
  }
  changed_.notify_one();
}

bool HiddenCaptures::learn_token(const Begun& pass, CapturePlaces::Piece& piece) const {
  const std::optional<std::uint32_t> from = pass.token_of[piece.span];
  if (!from) return true;
  if (*from >= samples_.size() || !samples_[*from]) return false;
  piece.tokens[piece.row] = *samples_[*from];
  return true;
}

// --- the thread ---

void HiddenCaptures::run() {
  pthread_setname_np(pthread_self(), "loci-captures");
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&]() REQUIRES(mutex_) { return stopping_ || !ended_.empty(); });
    if (stopping_) return;
    Begun pass = std::move(ended_.front());
    ended_.pop_front();
    lock.unlock();
    keep(pass);
    lock.lock();
    writing_.reset();
    ++copied_total_;
    waiting_rows_ -= pass.rows;
    std::vector<HostMemory> freed = give_back(std::move(pass.buffer));
    if (freed.empty()) continue;
    lock.unlock();
    freed.clear();
    lock.lock();
  }
}

void HiddenCaptures::keep(const Begun& pass) {
  for (std::size_t i = 0; i < pass.pieces.size(); ++i) {
    std::optional<std::uint32_t> place;
    {
      const MutexLock lock(mutex_);
      writing_.reset();
      if (pass.whole[i]) {
        place = places_.add(pass.pieces[i]);
      } else {
        places_.lost(pass.pieces[i]);
      }
      if (place) writing_ = pass.pieces[i].slot;
    }
    if (!place) continue;
    if (options_.before_copy) options_.before_copy();
    copy(pass, pass.pieces[i], *place);
  }
}

void HiddenCaptures::copy(const Begun& pass, const CapturePlaces::Piece& piece, std::uint32_t place) const {
  const std::uint64_t block = kBlockTokens * row_bytes_;
  const std::uint64_t first = pass.first_row[piece.span] + piece.token;
  std::byte* to = memory_.data() + place * layers_ * block + piece.row * row_bytes_;
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    std::memcpy(to + layer * block, pass.buffer.data() + (layer * pass.rows + first) * row_bytes_,
                piece.count * row_bytes_);
  }
}

// --- movers ---

void HiddenCaptures::forget(SlotId slot) {
  const MutexLock lock(mutex_);
  places_.forget(slot);
}

std::uint64_t HiddenCaptures::ended() const {
  const MutexLock lock(mutex_);
  return ended_total_;
}

bool HiddenCaptures::is_copied(std::uint64_t passes) const {
  const MutexLock lock(mutex_);
  return copied_total_ >= passes;
}

std::span<const std::byte> HiddenCaptures::open(SlotId slot, const BlockEntry& entry) {
  const MutexLock lock(mutex_);
  if (writing_ == slot) return {};
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
