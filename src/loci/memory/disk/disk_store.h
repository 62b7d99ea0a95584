// SPDX-License-Identifier: Apache-2.0
// The disk tier's bytes: fixed-size slots in sparse files, striped round-robin over directories
// (AttentionStore §3.3; HCache §4.2.2 for the striping). docs/disk-store.md has the format.
//
// Each group of layers has slots of its own size. A slot holds one block's state in the group: the layers'
// slices in packs (disk_layout.h), each pack readable alone. Its header (an entry, a checksum for each slice,
// and one over itself) is in a table of headers, so that a start reads headers only. Nothing is ever flushed:
// an entry verifies itself when it is read, so one that is torn, flipped or foreign (another model, another
// version) is reported as kDataLoss and never served.
//
// The store decides nothing: the core says which slot holds what. Reads go before writes.
//
// Thread-safe. Callbacks run on the store's own threads, must not block, and may call the store.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/memory/block_entry.h"
#include "loci/memory/block_source.h"
#include "loci/memory/state_form.h"

namespace loci {

// The most that one operation moves, unless a single slice is larger.
inline constexpr std::uint64_t kChunkBytesMax = std::uint64_t{512} << 10;
// Where the caller leaves it to the store: large enough for nearly all of a disk's bandwidth, small enough
// that the first layers come early (HCache §4.2.1).
inline constexpr std::uint64_t kChunkBytesDefault = std::uint64_t{256} << 10;

// Bytes that one operation reads by default, of slots that are so many slices.
constexpr std::uint64_t default_read_bytes(std::uint64_t slice_bytes, std::uint64_t layers) {
  const std::uint64_t slices = (kChunkBytesDefault + slice_bytes - 1) / slice_bytes;
  const std::uint64_t most = kChunkBytesMax > slice_bytes ? kChunkBytesMax / slice_bytes : 1;
  return std::min(std::min(slices, most), layers) * slice_bytes;
}

// The shape of one group's slots. A group of layers whose state is stored in two forms is two groups here:
// those of keys and values come first.
struct DiskGroup {
  std::uint32_t layers = 0;
  std::uint64_t layer_slice_bytes = 0;
  std::uint32_t slots = 0;  // in all directories together
  StateForm form = StateForm::kKeysAndValues;

  friend bool operator==(const DiskGroup&, const DiskGroup&) = default;
};

struct DiskDirectory {
  std::string path;
  std::uint64_t bytes = 0;       // that its files may take, never exceeded
  std::uint64_t held_bytes = 0;  // of the same budget, that other models' files take now
};

struct DiskStoreOptions {
  std::vector<DiskDirectory> directories;  // at least one
  std::vector<DiskGroup> groups;           // without slots: open() divides the space (policy's proportions
                                           // are in `shares`)
  std::vector<std::uint32_t> shares;       // slots of each group of layers in proportion to one another
  std::array<std::uint8_t, 16> model_fingerprint{};
  Nanos state_ttl = kNever;                   // of state without use: noted for others (UnusedState)
  std::string io = "auto";                    // auto, io_uring, threads (a pool of pread and pwrite)
  std::uint32_t queue_depth = 64;             // reads and writes in flight, in all directories together
  Nanos answer_limit = 10 * kNanosPerSecond;  // after which a disk is given up
  std::uint64_t bytes_per_second = 0;         // of reads and writes, all directories together; 0: no limit
  // Called in open(), once for each directory, if it waits for a process that drops state there.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  // Called on a thread of its own if recovery could not read all records, if the store's end waits for a disk
  // for longer than end_limit, and at the end if records could not be cleared: once each. And in
  // keep_locks().
  std::function<void(const std::string&)> warn = [](const std::string&) {};
  Nanos end_limit = 2 * kNanosPerSecond;
};

struct DiskStoreStats {
  std::string io;  // "io_uring" or "threads"
  std::uint64_t reads_total = 0, read_bytes_total = 0, read_errors_total = 0;
  std::uint64_t writes_total = 0, write_bytes_total = 0, write_errors_total = 0;
  std::uint64_t damaged_total = 0;  // entries that did not verify
  std::uint64_t foreign_total = 0;  // entries of another model or version, found at start
  // Records that are to be cleared or replaced, and whose write the disk refused or did not answer: it is
  // tried again, and until then a start would find them.
  std::uint64_t uncleared_records = 0;
};

class DiskStore : public BlockSource {
 public:
  // Opens or makes the files. Waits for a process that drops state there, for as long as it goes on. Errors,
  // all naming disk: kUnavailable where another process has a directory open (names both); kInvalidArgument;
  // kResourceExhausted where the space is not there. Files that cannot be read, or belong to another set of
  // directories, are made anew: losses() says so.
  static Result<std::unique_ptr<DiskStore>> open(const DiskStoreOptions& options);
  // Waits for what is in flight, and for records that could not be cleared yet: at most answer_limit for
  // each.
  ~DiskStore() override = default;

  // With slots; without hidden states where the file system cannot give space back. Where a group's hidden
  // states are kept beside its keys and values, each form has as many as its whole room is enough for.
  virtual const std::vector<DiskGroup>& groups() const = 0;
  virtual std::uint32_t hole_records() const = 0;  // slots of holes
  // Lines for the log about how it was opened that an operator should know (O_DIRECT or io_uring was
  // refused).
  virtual const std::vector<std::string>& notes() const = 0;
  // What was there before and could not be kept, and why: a warning each.
  virtual const std::vector<std::string>& losses() const = 0;
  // Slots of each group that `bytes` in each directory have room for, by the groups' proportions; of each
  // form as if there were no other.
  virtual std::vector<std::uint32_t> room(std::uint64_t bytes) const = 0;
  // Keys the chain keys of what is stored; made with the files, readable by their owner only.
  virtual const std::array<std::uint8_t, 32>& secret() const = 0;

  // Reads all headers on a thread of its own and hands over what verifies, parents before children, in
  // batches; the last one (perhaps empty) is marked. Where the disk does not read some, it hands over nothing
  // that may hang from them, so that nobody has that forgotten. Once, before the first write.
  virtual void recover(std::function<void(std::vector<RecoveredEntry>, bool last)> found) = 0;

  // O(1): whoever asks for metrics holds up no write.
  virtual DiskStoreStats stats() const = 0;
  // When its least recently used entry was last used, by the dates of the records (milliseconds since 1970);
  // 0: it holds nothing. O(slots), and writes wait meanwhile: for the keeper of the disk's budget alone.
  virtual std::int64_t oldest_used_at() const = 0;
  // Looks whether somebody deleted or replaced a directory's lock file; if so makes it anew and warns. For
  // the keeper alone, and now and then.
  virtual void keep_locks() = 0;
};

}  // namespace loci
