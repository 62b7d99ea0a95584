// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/memory/shared/s3_verdict.h"

namespace loci {
namespace {

constexpr std::uint32_t kReadTries = 3;

// Packs from `first` on that one request brings.
struct Piece {
  std::uint64_t offset = 0, bytes = 0;
};

Piece piece_from(const SharedFormat& format, std::uint32_t group, std::uint32_t first) {
  Piece piece{.offset = format.pack(group, first).offset};
  for (std::uint32_t i = first; i < format.pack_count(group); ++i) {
    const std::uint64_t bytes = format.pack(group, i).bytes;
    if (i > first && piece.bytes + bytes > S3Read::kPieceBytesMax) break;
    piece.bytes += bytes;
  }
  return piece;
}

}  // namespace

S3Read::S3Read(std::vector<Item> items, std::shared_ptr<BlockReadSink> sink, Nanos waits_until,
               const S3StoreState& state, S3Client& client)
    : items_(std::move(items)),
      sink_(std::move(sink)),
      waits_until_(waits_until),
      state_(state),
      client_(client),
      progress_(items_.size()) {}

void S3Read::begin() {
  for (std::size_t i = 0; i < items_.size(); ++i) ask(i, waits_until_);
}

void S3Read::refuse(const Status& status) {
  for (const Item& item : items_) sink_->done(item.place, status);
}

void S3Read::ask(std::size_t index, Nanos waits_until) {
  const Item& item = items_[index];
  const Piece piece = piece_from(state_.format, item.group, progress_[index].packs);
  client_.begin(
      {.verb = S3Request::Verb::kRead,
       .lane = S3Request::Lane::kReads,
       .name = s3_object_name(state_.format, item.key, item.group),
       .first = piece.offset,
       .bytes = piece.bytes,
       .waits_until = waits_until,
       .time_limit = state_.limit_of(piece.bytes),
       .tries = kReadTries,
       .take = [self = shared_from_this(), index](
                   const S3Head& head,
                   std::span<const std::byte> bytes) { return self->take(index, head, bytes); },
       .done = [self = shared_from_this(), index](const S3Reply& reply) { self->take_reply(index, reply); }});
}

bool S3Read::take(std::size_t index, const S3Head& head, std::span<const std::byte> bytes) {
  const Item& item = items_[index];
  Progress& progress = progress_[index];
  if (state_.is_expired(head)) {
    progress.verdict = not_found("its time in the shared store is over");
    return false;
  }
  if (!head.object_bytes()) {  // nobody says that it is damaged
    progress.verdict =
        Status(StatusCode::kUnavailable, "expected the length of a value, found an answer without");
    return false;
  }
  if (head.object_bytes() != state_.format.value_bytes(item.group)) {
    progress.verdict = data_loss("a value in the shared store is not as long as what was written");
    return false;
  }
  while (!bytes.empty()) {
    const std::uint64_t wanted = state_.format.pack(item.group, progress.packs).bytes;
    const std::size_t part = std::min<std::size_t>(bytes.size(), wanted - progress.pending.size());
    progress.pending.insert(progress.pending.end(), bytes.begin(),
                            bytes.begin() + static_cast<std::ptrdiff_t>(part));
    bytes = bytes.subspan(part);
    if (progress.pending.size() == wanted && !take_pack(index)) return false;
  }
  return true;
}

bool S3Read::take_pack(std::size_t index) {
  const Item& item = items_[index];
  Progress& progress = progress_[index];
  const SharedFormat::Pack pack = state_.format.pack(item.group, progress.packs);
  slices_.resize(state_.format.slices_bytes(item.group, pack));
  Status status = state_.format.open(item.key, item.group, pack, progress.pending, slices_);
  if (!status.ok()) {
    progress.verdict = std::move(status);
    return false;
  }
  state_.account.count(&SharedStoreStats::bytes_read_total, progress.pending.size());
  progress.pending.clear();
  ++progress.packs;
  sink_->slices(item.place, pack.first, pack.count, slices_);
  return true;
}

void S3Read::take_reply(std::size_t index, const S3Reply& reply) {
  const Item& item = items_[index];
  Progress& progress = progress_[index];
  // What waited, or ran out of time while it came, says nothing of the store.
  const Status health = s3_health(reply);
  const bool is_slow = health.code() == StatusCode::kDeadlineExceeded && reply.taken > 0;
  if (reply.was_sent && !is_slow) state_.account.note(health);
  if (!health.ok()) return finish(index, health);
  if (!progress.verdict && reply.head.code == 404)
    progress.verdict = not_found("it is not in the shared store any more");
  if (!progress.verdict && (!progress.pending.empty() || reply.taken == 0))
    progress.verdict = data_loss("a value in the shared store is shorter than what was written");
  if (progress.verdict) return finish(index, *progress.verdict);
  if (progress.packs < state_.format.pack_count(item.group)) return ask(index, kNever);
  if (state_.is_aged(reply.head)) state_.aged(item.key, item.group);
  finish(index, {});
}

void S3Read::finish(std::size_t index, Status status) {
  const Item& item = items_[index];
  if (status.ok()) state_.account.count(&SharedStoreStats::parts_read_total, 1);
  if (status.code() == StatusCode::kNotFound) state_.account.count(&SharedStoreStats::parts_gone_total, 1);
  const bool is_damaged = status.code() == StatusCode::kDataLoss && progress_[index].verdict.has_value();
  if (is_damaged) {
    state_.account.count(&SharedStoreStats::parts_damaged_total, 1);
    state_.damaged(item.key);
  }
  sink_->done(item.place, std::move(status));
}

}  // namespace loci
