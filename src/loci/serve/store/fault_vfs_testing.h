// SPDX-License-Identifier: Apache-2.0
// A disk for tests, in memory, under SQLite (a VFS): it keeps what was not yet synchronised apart from what
// was, and can lose its power. What a machine then finds is what was synchronised, and of the rest any part:
// writes are lost, torn within a sector, and reordered, by a seed. It can also be full, or fail.
//
// It promises what SQLite's own VFS for Unix promises: a torn write leaves the bytes beside it alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/random.h"

struct sqlite3_vfs;

namespace loci {

enum class DiskFault : std::uint8_t {
  kFull,        // files can't grow
  kWriteError,  // EIO from write
  kSyncError,   // EIO from fsync; the system forgets some of what it had to write, as Linux does
  kReadError,   // EIO from read
};

// One connection at a time; not thread-safe. Outlives the connections.
class FaultDisk {
 public:
  explicit FaultDisk(std::uint64_t seed);
  ~FaultDisk();
  FaultDisk(const FaultDisk&) = delete;
  FaultDisk& operator=(const FaultDisk&) = delete;

  const char* vfs_name() const { return name_.c_str(); }

  // Operations that change the disk (writes, truncations, syncs, deletions) so far.
  std::uint64_t operations() const { return operations_; }
  std::uint64_t syncs() const { return syncs_; }
  std::uint64_t reads() const { return reads_; }  // mostly of a page each
  // The power fails in the middle of the n-th of them from now (from 1); then everything fails.
  void crash_after(std::uint64_t operations) { crash_at_ = operations_ + operations; }
  bool crashed() const { return crashed_; }
  // The power is back. No connection may be open.
  void restart();

  // From the n-th affected operation from now (from 1) on, so many fail.
  void fail(DiskFault fault, std::uint64_t from, std::uint64_t count);
  void mend() { failing_count_ = 0; }

  // A disk that lies: syncs do nothing. To see that tests notice.
  void ignore_syncs() { ignores_syncs_ = true; }

 private:
  friend struct FaultVfs;  // the functions that SQLite calls

  struct Change {
    std::uint64_t offset = 0;
    std::string bytes;
    bool truncates = false;  // to `offset`
  };
  struct File {
    std::string seen;     // what the process reads
    std::string durable;  // what is on the disk for sure
    bool exists_durably = false;
    bool exists = true;
    std::vector<Change> pending;  // not yet synchronised, in order
    std::vector<std::unique_ptr<std::uint8_t[]>> shared_memory;
  };

  static void apply(const Change& change, std::string& bytes);
  // Counts an operation; true: the power fails in it.
  bool power_fails();
  bool fails(DiskFault fault);
  void lose_power_in(File& file);
  void apply_torn(const Change& change, std::string& bytes);

  std::string name_;
  std::unique_ptr<sqlite3_vfs> vfs_;
  Random random_;
  std::map<std::string, std::shared_ptr<File>> files_;
  std::uint64_t operations_ = 0;
  std::uint64_t syncs_ = 0;
  std::uint64_t reads_ = 0;
  std::uint64_t crash_at_ = 0;  // 0: never
  bool crashed_ = false;
  bool ignores_syncs_ = false;
  DiskFault failing_ = DiskFault::kFull;
  std::uint64_t failing_from_ = 0;  // affected operations until it begins
  std::uint64_t failing_count_ = 0;
};

}  // namespace loci
