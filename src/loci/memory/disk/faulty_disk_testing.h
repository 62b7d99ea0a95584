// SPDX-License-Identifier: Apache-2.0
// A disk in memory that loses power, answers late, never, short or with errors: the file layer under tests
// of the disk store.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/base/random.h"
#include "loci/memory/disk/disk_files.h"

namespace loci {

// What became of an operation; `bytes` of it are carried out.
struct FaultAnswer {
  enum class Kind : std::uint8_t { kFine, kError, kShort, kHangs } kind = Kind::kFine;
  int error = 0;          // kError: an errno
  std::size_t bytes = 0;  // kShort
};

struct FaultyOperation {
  std::string directory, file;
  bool write = false;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
  bool discard = false;  // a write that gives space back
};

// Thread-safe. Must outlive the stores on it; its end waits for operations that are under way.
class FaultyDisk {
 public:
  ~FaultyDisk();
  using Judge = std::function<FaultAnswer(const FaultyOperation&)>;

  MakeDiskFolder folders();
  // Asked before each read and write, under no lock.
  void set_judge(Judge judge);
  // Lets operations that were never to be answered go on.
  void release();
  // Waits until no operation is under way. (A store that ends does not wait for those that it has given up.)
  void wait_for_rest();

  // What was written until now survives a loss of power.
  void sync();
  // Nothing was flushed since sync(): of each sector any of the contents that it had since then may be what
  // survives, whatever became of others.
  void lose_power(Random& random);
  // Changes a byte that is stored.
  void flip(const std::string& directory, const std::string& file, std::uint64_t offset);

  std::uint64_t bytes_of(const std::string& directory) const;

 private:
  class File;
  class Folder;
  // A file's content, and what its sectors held since the last sync. Under mutex_.
  struct Content {
    std::vector<std::byte> bytes;
    std::map<std::uint64_t, std::vector<std::vector<std::byte>>> older;  // by sector
  };

  std::int64_t move(const FaultyOperation& operation, std::byte* data, Content& content);
  std::int64_t carry_out(const FaultyOperation& operation, std::byte* data, Content& content);

  mutable Mutex mutex_;
  Condition released_;
  std::uint64_t releases_ GUARDED_BY(mutex_) = 0;
  std::uint64_t under_way_ GUARDED_BY(mutex_) = 0;
  Judge judge_ GUARDED_BY(mutex_);
  std::map<std::string, std::map<std::string, std::shared_ptr<Content>>> directories_ GUARDED_BY(mutex_);
};

}  // namespace loci
