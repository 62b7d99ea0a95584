// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_recovery.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <iterator>
#include <memory>
#include <unordered_set>

#include "loci/base/random.h"
#include "loci/memory/disk/disk_format.h"

namespace loci {
namespace {

constexpr std::uint64_t kReservedMost = 4'000'000;
constexpr std::uint64_t kScanBytes = std::uint64_t{2} << 20;
// Records of a file that are refused when they are asked for alone, until no more are: a disk may take
// seconds to refuse one.
constexpr std::uint64_t kRefusalsMost = 16;

std::uint32_t group_of(const RecoveredEntry& one) { return one.hole ? kHoleGroup : one.group; }

struct PieceRead {
  std::uint64_t bytes = 0;  // fewer than wanted where the file ends, or the disk refuses
  bool refused = false;
};

PieceRead read_piece(DiskFile& file, std::uint64_t offset, std::span<std::byte> into) {
  PieceRead piece;
  while (piece.bytes < into.size()) {
    const std::int64_t result = file.read(offset + piece.bytes, into.subspan(piece.bytes));
    if (result == -EINTR) continue;
    piece.refused = result < 0;
    if (result <= 0) break;
    piece.bytes += static_cast<std::uint64_t>(result);
  }
  return piece;
}

// Reads many rows of a file of records at once. What the disk refuses is asked for again record by record, so
// that an error which passes costs nothing, and a sector that stays unreadable costs the records in it.
class RowReader {
 public:
  RowReader(DiskFile& file, std::uint64_t stride, const std::function<bool()>& stop)
      : file_(file), stride_(stride), stop_(stop) {}

  // Fills whole rows from row `at` on: what did not come is zeros, as of an empty record. Counts what was
  // refused.
  void read(std::uint64_t at, std::span<std::byte> into, RecordScan& scan) {
    const PieceRead piece = read_piece(file_, at * stride_, into);
    const std::uint64_t came = piece.bytes / stride_ * stride_;
    std::ranges::fill(into.subspan(came), std::byte{0});
    if (!piece.refused) return;
    ++scan.read_errors;
    for (std::uint64_t done = came; done < into.size(); done += stride_) {
      if (!read_alone(at * stride_ + done, into.subspan(done, stride_))) ++scan.unread;
    }
  }

 private:
  bool read_alone(std::uint64_t offset, std::span<std::byte> record) {
    if (refusals_ == kRefusalsMost || stop_()) return false;
    const PieceRead piece = read_piece(file_, offset, record);
    if (piece.bytes < record.size()) std::ranges::fill(record, std::byte{0});
    if (piece.refused) ++refusals_;
    return !piece.refused;
  }

  DiskFile& file_;
  const std::uint64_t stride_;
  const std::function<bool()>& stop_;
  std::uint64_t refusals_ = 0;
};

// Which entry has a key, by open addressing: a million of them in a tenth of a second.
class NewestByKey {
 public:
  explicit NewestByKey(const std::vector<RecoveredEntry>& entries)
      : entries_(entries), places_(std::bit_ceil(entries.size() * 2 + 1), kNone) {}

  void add(std::uint32_t index) {
    const RecoveredEntry& one = entries_[index];
    std::size_t at = mix64(ChainKeyHash()(one.entry.key) ^ group_of(one)) & (places_.size() - 1);
    while (places_[at] != kNone && !same(entries_[places_[at]], one)) at = (at + 1) & (places_.size() - 1);
    if (places_[at] == kNone || entries_[places_[at]].entry.used_at < one.entry.used_at)
      std::swap(places_[at], index);
    if (index != kNone) older_.push_back(index);
  }

  // Parents first; of each depth the newest ones, then the older ones.
  std::vector<std::uint32_t> by_depth() const {
    const std::vector<std::uint64_t> newest = sorted(places_), older = sorted(older_);
    std::vector<std::uint64_t> all;
    all.reserve(entries_.size());
    std::ranges::merge(newest, older, std::back_inserter(all), {}, depth_of, depth_of);
    std::vector<std::uint32_t> order;
    order.reserve(all.size());
    for (const std::uint64_t one : all) order.push_back(static_cast<std::uint32_t>(one));
    return order;
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  static bool same(const RecoveredEntry& a, const RecoveredEntry& b) {
    return a.entry.key == b.entry.key && group_of(a) == group_of(b);
  }

  // depth in the upper half, so that sorting them puts parents first.
  std::vector<std::uint64_t> sorted(const std::vector<std::uint32_t>& indices) const {
    std::vector<std::uint64_t> all;
    all.reserve(std::min(indices.size(), entries_.size()));
    for (const std::uint32_t index : indices) {
      if (index != kNone) all.push_back((std::uint64_t{entries_[index].entry.depth} << 32) | index);
    }
    std::ranges::sort(all);
    return all;
  }
  static std::uint64_t depth_of(std::uint64_t one) { return one >> 32; }

  const std::vector<RecoveredEntry>& entries_;
  std::vector<std::uint32_t> places_;
  std::vector<std::uint32_t> older_;
};

// The block that an entry hangs from, if it is no root's.
const ChainKey& above_of(const BlockEntry& entry) {
  return entry.parent_kind == ParentKind::kGate ? entry.above : entry.parent;
}

// When each block was last used, by open addressing.
class YoungestByKey {
 public:
  explicit YoungestByKey(std::size_t blocks) : places_(std::bit_ceil(blocks * 2 + 1)) {}

  // Zero of a block that nobody has named.
  std::int64_t& of(const ChainKey& key) {
    std::size_t at = mix64(ChainKeyHash()(key)) & (places_.size() - 1);
    while (places_[at].taken && places_[at].key != key) at = (at + 1) & (places_.size() - 1);
    places_[at].taken = true;
    places_[at].key = key;
    return places_[at].used_at;
  }

 private:
  struct Place {
    ChainKey key;
    std::int64_t used_at = 0;
    bool taken = false;
  };
  std::vector<Place> places_;
};

}  // namespace

RecordScan scan_records(DiskFile& file, const DiskLayout& layout, const RecordPlace& first,
                        const std::function<bool()>& stop,
                        const std::function<void(const RecoveredEntry&)>& found) {
  const bool hole = first.group == kHoleGroup;
  const std::uint32_t layers = hole ? 0 : layout.groups[first.group].layers;
  const std::uint64_t stride = record_bytes(layers);
  const std::uint64_t rows = (hole ? layout.holes : layout.groups[first.group].slots) / layout.directories;
  const std::uint64_t rows_at_once = std::max<std::uint64_t>(1, kScanBytes / stride);
  std::vector<std::byte> memory(rows_at_once * stride);
  RecordPlace place = first;
  RecoveredEntry one{.group = hole ? 0 : first.group, .hole = hole};
  RecordScan scan;
  RowReader reader(file, stride, stop);
  for (std::uint64_t at = 0; at < rows && !stop(); at += rows_at_once) {
    // Most of a young store was never written.
    at = std::max(at, file.next_data(at * stride) / stride);
    if (at >= rows) break;
    const std::uint64_t wanted = std::min(rows_at_once, rows - at);
    reader.read(at, std::span(memory).first(wanted * stride), scan);
    for (std::uint64_t row = 0; row < wanted; ++row) {
      place.slot = static_cast<std::uint32_t>((at + row) * layout.directories + first.slot);
      switch (decode_record(place, layers, std::span(memory).subspan(row * stride, stride), one.entry)) {
        case RecordState::kEmpty: break;
        case RecordState::kDamaged: ++scan.damaged; break;
        case RecordState::kForeign: ++scan.foreign; break;
        case RecordState::kValid:
          ++scan.valid;
          one.slot = SlotId(place.slot);
          found(one);
      }
    }
  }
  return scan;
}

RecoveryScan scan_files(const DiskFileSet& files, const std::function<bool()>& stop) {
  RecoveryScan all;
  // Address space alone, until there are so many.
  std::uint64_t most = files.layout.holes;
  for (const DiskGroup& group : files.layout.groups) most += group.slots;
  all.entries.reserve(std::min(most, kReservedMost));
  const auto add = [&](DiskFile& file, std::uint32_t group, std::uint32_t directory) {
    const RecordScan one = scan_records(file, files.layout, files.record_of(group, directory), stop,
                                        [&](const RecoveredEntry& entry) { all.entries.push_back(entry); });
    all.counts.valid += one.valid;
    all.counts.damaged += one.damaged;
    all.counts.foreign += one.foreign;
    all.counts.read_errors += one.read_errors;
    all.counts.unread += one.unread;
  };
  for (std::uint32_t d = 0; d < files.directories.size(); ++d) {
    const DiskFileSet::Directory& one = files.directories[d];
    for (std::uint32_t g = 0; g < one.headers.size(); ++g) add(*one.headers[g], g, d);
    add(*one.holes, kHoleGroup, d);
  }
  return all;
}

std::vector<std::uint32_t> recovery_order(const std::vector<RecoveredEntry>& entries) {
  NewestByKey newest(entries);
  for (std::size_t i = 0; i < entries.size(); ++i) newest.add(static_cast<std::uint32_t>(i));
  return newest.by_depth();
}

void date_by_youngest(std::vector<RecoveredEntry>& entries, const std::vector<std::uint32_t>& order) {
  YoungestByKey youngest(order.size() * 2);  // blocks, and what they hang from
  for (const std::uint32_t index : order) {
    std::int64_t& used_at = youngest.of(entries[index].entry.key);
    used_at = std::max(used_at, entries[index].entry.used_at);
  }
  // The deepest first: what is below a block has been seen to before it.
  for (auto index = order.rbegin(); index != order.rend(); ++index) {
    BlockEntry& entry = entries[*index].entry;
    entry.used_at = youngest.of(entry.key);
    if (entry.parent_kind == ParentKind::kRoot) continue;
    std::int64_t& above = youngest.of(above_of(entry));
    above = std::max(above, entry.used_at);
  }
}

std::vector<std::uint32_t> joined_entries(const std::vector<RecoveredEntry>& entries,
                                          const std::vector<std::uint32_t>& order) {
  std::unordered_set<ChainKey, ChainKeyHash> reached, leading;
  std::vector<std::uint32_t> joined;
  for (const std::uint32_t index : order) {
    const BlockEntry& entry = entries[index].entry;
    if (entry.parent_kind != ParentKind::kRoot && !reached.contains(above_of(entry))) continue;
    reached.insert(entry.key);
    joined.push_back(index);
  }
  // From the deepest up: a hole comes after all that it leads to.
  std::vector<std::uint32_t> kept;
  for (auto index = joined.rbegin(); index != joined.rend(); ++index) {
    const RecoveredEntry& one = entries[*index];
    if (one.hole && !leading.contains(one.entry.key)) continue;
    if (one.entry.parent_kind != ParentKind::kRoot) leading.insert(above_of(one.entry));
    kept.push_back(*index);
  }
  std::ranges::reverse(kept);
  return kept;
}

}  // namespace loci
