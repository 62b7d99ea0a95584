// SPDX-License-Identifier: Apache-2.0
// The seam between a disk store and its files: real ones (make_disk_folder()), or ones that a test breaks.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "loci/base/clock.h"
#include "loci/base/descriptor.h"
#include "loci/base/status.h"

namespace loci {

// An open file. Thread-safe (but for grow()); closed when the last owner lets go.
class DiskFile {
 public:
  virtual ~DiskFile() = default;
  // Bytes moved, which may be fewer than asked (0: the file ends here), or -errno. Direct files need
  // offsets, sizes and memory that are multiples of kDiskAlignment.
  virtual std::int64_t read(std::uint64_t offset, std::span<std::byte> into) = 0;
  virtual std::int64_t write(std::uint64_t offset, std::span<const std::byte> from) = 0;
  virtual std::uint64_t size_bytes() const = 0;
  // The first place from `offset` on where something may have been written: what lies before it reads as
  // zeros. The file's size where nothing was.
  virtual std::uint64_t next_data(std::uint64_t offset) const = 0;
  // The range reads as zeros afterwards, and the file system has its space back. 0 or -errno.
  virtual std::int64_t discard(std::uint64_t offset, std::uint64_t bytes) = 0;
  // Makes the file longer; what is new reads as zeros and takes no space yet. 0 or -errno.
  virtual std::int64_t grow(std::uint64_t bytes) = 0;
  virtual bool direct() const = 0;  // past the page cache
  // For io_uring; -1 where there is none, and read() and write() alone work.
  virtual int descriptor() const = 0;
};

// A discard that ended so never goes well: the file system, or the system's way to ask it, cannot.
constexpr bool never_discards(std::int64_t result) {
  return result == -EOPNOTSUPP || result == -ENOSYS || result == -EINVAL;
}

enum class FileCaching : std::uint8_t {
  kCached,
  kDirect,  // or cached, where the file system refuses O_DIRECT
};

// Who wants a folder's lock. A server has it for as long as it runs; whoever drops state there has it for a
// moment, and says that it goes on.
struct DiskLockWish {
  bool for_a_moment = false;
  // How long it waits for who has the folder for a moment and does not go on (a disk may take long for one
  // operation); for a server it waits half a second.
  Nanos patience = 60 * kNanosPerSecond;
  // For whom it waits, once, after half a second.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  std::function<Nanos()> now = [] { return SystemClock().now(); };
  std::function<void(Nanos)> pause = [](Nanos time) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(time));
  };
};

// A directory of a store. Thread-compatible; keeps its lock until destroyed.
class DiskFolder {
 public:
  virtual ~DiskFolder() = default;
  virtual const std::string& path() const = 0;
  // Makes the directory (0700) where it is missing, and locks it. Errors: kUnavailable where another
  // process has it; kInvalidArgument naming disk where it cannot be made or written.
  virtual Status lock(const DiskLockWish& wish) = 0;
  // Whoever has it for a moment goes on: a write of some bytes.
  virtual void go_on() = 0;
  // Whoever has it for good finds its lock's file deleted or replaced: makes it anew, so that others see that
  // somebody has the folder. Returns a line for the log; empty: all is well, or it was said. Cheap.
  virtual std::string keep_lock() = 0;
  // Errors: kNotFound, kUnavailable.
  virtual Result<std::shared_ptr<DiskFile>> open(std::string_view name, FileCaching caching) = 0;
  // A new file (0600) of that many zero bytes, which take space as they are written; one of the name is
  // replaced. Errors: kResourceExhausted naming disk, kUnavailable.
  virtual Result<std::shared_ptr<DiskFile>> create(std::string_view name, std::uint64_t bytes,
                                                   FileCaching caching) = 0;
  // A small file, whole: whatever ends the process or the machine, it has the old content or the new one.
  // Errors: kResourceExhausted naming disk, kUnavailable.
  virtual Status replace(std::string_view name, std::span<const std::byte> content) = 0;
  virtual Status remove(std::string_view name) = 0;  // no error where it is not there
  // How many bytes of the file system are free for it.
  virtual std::uint64_t free_bytes() const = 0;
};

std::unique_ptr<DiskFolder> make_disk_folder(std::string path);

// Opens for reading alone, takes no lock. Errors: kNotFound, kUnavailable.
Result<std::shared_ptr<DiskFile>> open_disk_file_to_read(const std::string& path);

enum class DiskAccess : std::uint8_t { kRead, kChange };
// Opens a file of the open directory, and nothing else: no link is followed, nothing waits as at a pipe.
// Errors: kNotFound; kDataLoss where it is no file; kUnavailable.
Result<std::shared_ptr<DiskFile>> open_disk_file_in(int directory, const std::string& name,
                                                    DiskAccess access);

// The process that has the directory locked; 0: none; -1: one that did not say its number.
int disk_folder_user(const std::string& path);

// A folder's lock is a file. Whoever gets it writes its process there and a number that nobody wrote before:
// so who reads the same mark twice knows that nobody had the folder between.
struct DiskLockMark {
  bool held = false;  // by whoever wrote it
  std::string text;   // empty: none
};
// Whether a version wrote it that writes such numbers, and so notes how long state is kept.
bool names_its_time(const DiskLockMark& mark);
// Whether it was written by somebody who has the folder for a moment.
bool is_of_a_moment(const DiskLockMark& mark);
// The mark, as it is now. It may be held by the time that this returns, and the mark is then another one.
DiskLockMark read_disk_lock(const DiskFile& lock_file);
// Writes a new mark; whoever has the lock.
DiskLockMark mark_disk_lock(DiskFile& lock_file, bool for_a_moment);

// A lock that was taken; destroying it lets it go. Movable.
struct DiskLock {
  std::shared_ptr<DiskFile> file;
  Descriptor folder;
};
// Takes the lock, without waiting: of the file, and of the folder that it is in, so that nobody gets in whom
// a server's lock keeps out, although its file was deleted or replaced. (Some file systems lock no folders.)
// Errors: kCancelled where somebody has it; kUnavailable.
Result<DiskLock> take_disk_lock(int folder, std::shared_ptr<DiskFile> lock_file);

// "No such file or directory" of an errno.
std::string errno_text(int error);

}  // namespace loci
