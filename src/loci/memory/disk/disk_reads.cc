// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_reads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "loci/memory/disk/disk_format.h"

namespace loci {
namespace {

constexpr std::uint32_t kHeaderStep = 0;  // step i > 0 is chunk i - 1

class ItemReader final : public DiskOperationOwner, public std::enable_shared_from_this<ItemReader> {
 public:
  ItemReader(const DiskFileSet& files, DiskCounters& counters, const BlockRead& item, std::size_t index,
             std::uint32_t layers_at_once, std::shared_ptr<BlockReadSink> sink)
      : files_(files),
        counters_(counters),
        item_(item),
        index_(index),
        layers_(files.layout.groups[item.group].layers),
        layers_at_once_(layers_of_chunk(files.layout, item.group, layers_at_once)),
        sink_(std::move(sink)),
        arrived_((layers_ + layers_at_once_ - 1) / layers_at_once_) {}

  std::uint32_t steps() const { return static_cast<std::uint32_t>(arrived_.size()) + 1; }

  void push(std::uint32_t step, DiskQueue& queue) {
    const DiskFileSet::Place place =
        step == kHeaderStep ? files_.record_place(item_.group, item_.slot)
                            : files_.slice_place(item_.group, item_.slot, first_of(step), count_of(step));
    queue.push({.owner = shared_from_this(),
                .step = step,
                .lane = place.directory,
                .file = place.file,
                .offset = place.offset,
                .bytes = place.bytes});
  }

  void finish(Status status) {
    if (finished_) return;
    finished_ = true;
    arrived_.clear();
    header_.reset();
    counters_.reads.fetch_add(1, std::memory_order_relaxed);
    sink_->done(index_, std::move(status));
    sink_.reset();
  }

  bool prepare(std::uint32_t, std::span<std::byte>) override {
    if (!finished_ && !sink_->wanted(index_)) finish({StatusCode::kCancelled, "nobody waits for it"});
    return !finished_;
  }

  void ended(std::uint32_t step, std::int64_t result, DiskBuffer data) override {
    if (finished_) return;
    if (result < 0) return fail(static_cast<int>(-result));
    const DiskFileSet::Place place =
        step == kHeaderStep ? files_.record_place(item_.group, item_.slot)
                            : files_.slice_place(item_.group, item_.slot, first_of(step), count_of(step));
    if (static_cast<std::uint64_t>(result) < place.bytes) return damaged("the file ends before it");
    counters_.read_bytes.fetch_add(place.bytes, std::memory_order_relaxed);
    if (step == kHeaderStep) {
      take_header(std::move(data));
    } else {
      arrived_[step - 1] = std::move(data);
    }
    hand_over();
  }

 private:
  std::uint32_t first_of(std::uint32_t step) const { return (step - 1) * layers_at_once_; }
  std::uint32_t count_of(std::uint32_t step) const {
    return std::min(layers_at_once_, layers_ - first_of(step));
  }

  void fail(int error) {
    counters_.read_errors.fetch_add(1, std::memory_order_relaxed);
    const std::string& path = files_.directories[files_.layout.directory_of(item_.slot)].folder->path();
    if (error == ETIME) return finish({StatusCode::kDeadlineExceeded, path + ": the disk did not answer"});
    finish({StatusCode::kUnavailable, fmt::format("{}: {}", path, errno_text(error))});
  }

  void damaged(std::string_view what) {
    counters_.damaged.fetch_add(1, std::memory_order_relaxed);
    finish(data_loss(fmt::format("group {}, slot {}: {}", item_.group, item_.slot.value, what)));
  }

  void take_header(DiskBuffer data) {
    BlockEntry entry;
    const RecordPlace place = files_.record_of(item_.group, item_.slot.value);
    switch (decode_record(place, layers_, data.bytes(), entry)) {
      case RecordState::kValid: break;
      case RecordState::kEmpty: return finish(data_loss("nothing is in the slot"));
      case RecordState::kDamaged: return damaged("the header does not verify");
      case RecordState::kForeign:
        counters_.foreign.fetch_add(1, std::memory_order_relaxed);
        return finish(data_loss("the entry is another model's or version's"));
    }
    if (entry.key != item_.key) return finish(data_loss("another entry is in the slot"));
    header_ = std::move(data);
  }

  void hand_over() {
    const std::uint32_t pack = files_.layout.pack_layers(item_.group);
    const std::uint64_t stride = files_.layout.pack_stride(item_.group);
    const std::uint64_t size = files_.layout.groups[item_.group].layer_slice_bytes;
    while (!finished_ && header_ && next_ < arrived_.size() && arrived_[next_]) {
      const std::uint32_t first = first_of(next_ + 1), count = count_of(next_ + 1);
      const DiskBuffer chunk = std::move(arrived_[next_++]);
      const std::span<const std::byte> bytes = chunk.bytes();
      for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint64_t at = i / pack * stride + i % pack * size;
        if (slice_checksum(item_.slot.value, first + i, bytes.subspan(at, size)) !=
            recorded_checksum(header_->bytes(), first + i)) {
          return damaged(fmt::format("layer {} does not verify", first + i));
        }
      }
      if (stride == pack * size) {
        sink_->slices(index_, first, count, bytes.first(count * size));
      } else {
        for (std::uint32_t i = 0; i < count; i += pack) {
          const std::uint32_t layers = std::min(pack, count - i);
          sink_->slices(index_, first + i, layers, bytes.subspan(i / pack * stride, layers * size));
        }
      }
    }
    if (!finished_ && next_ == arrived_.size()) finish({});
  }

  const DiskFileSet& files_;
  DiskCounters& counters_;
  const BlockRead item_;
  const std::size_t index_;
  const std::uint32_t layers_, layers_at_once_;
  std::shared_ptr<BlockReadSink> sink_;
  std::optional<DiskBuffer> header_;  // verified
  std::vector<DiskBuffer> arrived_;   // by chunk
  std::size_t next_ = 0;              // chunk to hand over
  bool finished_ = false;
};

}  // namespace

std::uint32_t layers_of_chunk(const DiskLayout& layout, std::uint32_t group, std::uint32_t wanted) {
  // In packs.
  const std::uint64_t stride = layout.pack_stride(group), pack = layout.pack_layers(group);
  const std::uint64_t most = std::max<std::uint64_t>(1, kChunkBytesMax / stride);
  const std::uint64_t chosen =
      wanted > 0 ? (wanted + pack - 1) / pack : (kChunkBytesDefault + stride - 1) / stride;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(std::min(chosen, most) * pack, layout.groups[group].layers));
}

void push_reads(const DiskFileSet& files, DiskCounters& counters, DiskQueue& queue,
                const std::vector<BlockRead>& items, const std::vector<std::uint8_t>& gone,
                std::uint32_t layers_at_once, std::shared_ptr<BlockReadSink> sink) {
  std::vector<std::shared_ptr<ItemReader>> readers;
  for (std::size_t i = 0; i < items.size(); ++i) {
    auto reader = std::make_shared<ItemReader>(files, counters, items[i], i, layers_at_once, sink);
    if (gone[i] != 0) {
      reader->finish(data_loss("the slot is being written"));
    } else {
      readers.push_back(std::move(reader));
    }
  }
  for (std::uint32_t step = 0; !readers.empty(); ++step) {
    for (const auto& reader : readers) reader->push(step, queue);
    std::erase_if(readers, [&](const auto& reader) { return step + 1 == reader->steps(); });
  }
}

}  // namespace loci
