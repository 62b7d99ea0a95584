// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "loci/base/clock.h"
#include "loci/base/descriptor.h"
#include "loci/base/durable_file.h"
#include "loci/base/units.h"
#include "loci/memory/disk/disk_file.h"
#include "loci/memory/disk/disk_format.h"
#include "loci/memory/disk/disk_layout.h"

namespace loci {
namespace {

constexpr int kDiscardMode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

class RealFile final : public DiskFile {
 public:
  RealFile(Descriptor descriptor, std::uint64_t size, bool direct)
      : descriptor_(std::move(descriptor)), size_(size), direct_(direct) {}

  std::int64_t read(std::uint64_t offset, std::span<std::byte> into) override {
    const ssize_t got = ::pread(descriptor_.get(), into.data(), into.size(), static_cast<off_t>(offset));
    return got < 0 ? -errno : got;
  }
  std::int64_t write(std::uint64_t offset, std::span<const std::byte> from) override {
    const ssize_t put = ::pwrite(descriptor_.get(), from.data(), from.size(), static_cast<off_t>(offset));
    return put < 0 ? -errno : put;
  }
  std::uint64_t size_bytes() const override { return size_; }
  std::uint64_t next_data(std::uint64_t offset) const override {
    const off_t found = ::lseek(descriptor_.get(), static_cast<off_t>(offset), SEEK_DATA);
    if (found >= 0) return static_cast<std::uint64_t>(found);
    return errno == ENXIO ? size_ : offset;  // or the file system does not know
  }
  std::int64_t discard(std::uint64_t offset, std::uint64_t bytes) override {
    const int done =
        ::fallocate(descriptor_.get(), kDiscardMode, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    return done == 0 ? 0 : -errno;
  }
  std::int64_t grow(std::uint64_t bytes) override {
    if (::ftruncate(descriptor_.get(), static_cast<off_t>(bytes)) != 0) return -errno;
    size_ = bytes;
    return 0;
  }
  bool direct() const override { return direct_; }
  int descriptor() const override { return descriptor_.get(); }

 private:
  Descriptor descriptor_;
  std::uint64_t size_;
  bool direct_;
};

// Some file systems accept the flag and refuse the reads.
bool direct_works(int descriptor) {
  void* memory = std::aligned_alloc(kDiskAlignment, kDiskAlignment);
  const bool works = memory != nullptr && ::pread(descriptor, memory, kDiskAlignment, 0) >= 0;
  std::free(memory);
  return works;
}

// fcntl's locks of open files: like flock, they go with the process, whatever ends it; and one may ask who
// holds them without taking them.
struct flock whole_file_lock() {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

constexpr int kLockTries = 10;
constexpr Nanos kLockPause = 50 * kNanosPerMilli;
constexpr Nanos kLockSaysAfter = kNanosPerSecond / 2;
// How often somebody else has a new lock file before that is said: whoever tries to start has it for an
// instant.
constexpr int kOtherHoldersMost = 5;
// "12345      89abcdef01234567\n": a process, for how long it has it, a number.
constexpr std::size_t kLockMarkBytes = 28, kLockMarkUseAt = 10;
constexpr char kServes = ' ', kForAMoment = '~';

int process_of(const DiskLockMark& mark) {
  const long number = std::strtol(mark.text.c_str(), nullptr, 10);
  return number > 0 ? static_cast<int>(number) : 0;
}

std::string by_process(const DiskLockMark& mark) {
  const int number = process_of(mark);
  return number > 0 ? fmt::format(" (process {})", number) : "";
}

// Between two tries to lock a folder: for whom, and for how long.
class LockWait {
 public:
  LockWait(const std::string& path, const DiskLockWish& wish)
      : path_(path), wish_(wish), begun_(wish.now()) {}

  // The folder went, with its lock, while it was waited for.
  Status after_removal(const Status& why) {
    if (++removals_ < kLockTries) return {};
    if (!std::filesystem::exists(path_)) return invalid_argument(why.message(), "disk");
    return {
        StatusCode::kUnavailable,
        fmt::format("{}: another process removes this directory again and again; find out which, and stop it",
                    path_),
        "disk"};
  }

  // Somebody has it. Whoever has it for a moment writes another mark each time that it goes on.
  Status after_refusal(const DiskLockMark& mark) {
    const Nanos now = wish_.now();
    if (mark.text != seen_) since_ = now;
    seen_ = mark.text;
    refusals_ = is_of_a_moment(mark) ? 0 : refusals_ + 1;
    if (refusals_ > kLockTries) return in_use(mark);
    if (refusals_ == 0) {
      if (now - since_ > std::max(wish_.patience, kLockTries * kLockPause)) return stands_still(mark);
      if (now - begun_ > kLockSaysAfter && !std::exchange(has_said_, true))
        wish_.say(
            fmt::format("{}: waits for another process{} that drops state there", path_, by_process(mark)));
    }
    wish_.pause(kLockPause);
    return {};
  }

 private:
  Status in_use(const DiskLockMark& mark) const {
    return {StatusCode::kUnavailable,
            fmt::format("{}: another server{} keeps this model's state there; servers of one model need "
                        "directories of their own",
                        path_, mark.held ? by_process(mark) : ", whose lock file was deleted,"),
            "disk"};
  }
  Status stands_still(const DiskLockMark& mark) const {
    return {
        StatusCode::kUnavailable,
        fmt::format("{}: another process{} drops state there, and has not gone on for {}; its disk may not "
                    "answer",
                    path_, by_process(mark), format_duration(wish_.now() - since_)),
        "disk"};
  }

  const std::string& path_;
  const DiskLockWish& wish_;
  const Nanos begun_;
  Nanos since_ = begun_;  // that it shows this mark
  std::string seen_;
  int refusals_ = 0, removals_ = 0;
  bool has_said_ = false;
};

class RealFolder final : public DiskFolder {
 public:
  explicit RealFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const override { return path_; }

  std::uint64_t free_bytes() const override {
    struct statvfs facts{};
    if (::statvfs(path_.c_str(), &facts) != 0) return ~std::uint64_t{0};  // the attempt will tell
    return std::uint64_t{facts.f_bavail} * facts.f_frsize;
  }

  Status lock(const DiskLockWish& wish) override {
    LockWait wait(path_, wish);
    while (true) {
      DiskLockMark mark;
      const Status locked = lock_once(wish, mark);
      if (locked.ok()) return {};
      if (locked.code() != StatusCode::kCancelled && locked.code() != StatusCode::kNotFound) return locked;
      LOCI_RETURN_IF_ERROR(locked.code() == StatusCode::kNotFound ? wait.after_removal(locked)
                                                                  : wait.after_refusal(mark));
    }
  }

  void go_on() override {
    if (lock_) mark_disk_lock(*lock_->file, true);
  }

  std::string keep_lock() override {
    if (!lock_ || is_there(*lock_->file) || !is_same_folder()) return {};
    Descriptor opened(
        ::openat(lock_->folder.get(), kLockFileName, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!opened.is_open())
      return once(fmt::format("{}: was deleted while a server has its folder, and cannot be made anew: {}",
                              name(kLockFileName), errno_text(errno)));
    auto file = std::make_shared<RealFile>(std::move(opened), 0, false);
    struct flock lock = whole_file_lock();
    if (::fcntl(file->descriptor(), F_OFD_SETLK, &lock) != 0) {
      if (++other_holders_ < kOtherHoldersMost) return {};
      return once(
          fmt::format("{}: was deleted while a server has its folder, and another process{} has it now: stop "
                      "one of them, or both lose state",
                      name(kLockFileName), by_process(read_disk_lock(*file))));
    }
    mark_disk_lock(*file, false);
    lock_->file = std::move(file);
    other_holders_ = 0;
    said_.clear();
    return fmt::format(
        "{}: was deleted or replaced while a server has its folder; it is made anew: leave it there",
        name(kLockFileName));
  }

  Result<std::shared_ptr<DiskFile>> open(std::string_view file, FileCaching caching) override {
    return open_file(file, O_RDWR, caching);
  }

  Result<std::shared_ptr<DiskFile>> create(std::string_view file, std::uint64_t bytes,
                                           FileCaching caching) override {
    LOCI_RETURN_IF_ERROR(remove(file));
    const std::string path = name(file);
    {
      const Descriptor made(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (made.get() < 0) return failed(path, "cannot be made", errno);
      if (::ftruncate(made.get(), static_cast<off_t>(bytes)) != 0) {
        const int error = errno;
        ::unlink(path.c_str());
        return failed(path, fmt::format("a file of {} cannot be made", format_bytes(bytes)), error);
      }
    }
    return open_file(file, O_RDWR, caching);
  }

  Status replace(std::string_view file, std::span<const std::byte> content) override {
    Status done = replace_file(name(file), {reinterpret_cast<const char*>(content.data()), content.size()});
    return done.ok() ? Status() : Status(done.code(), done.message(), "disk");
  }

  Status remove(std::string_view file) override {
    const std::string path = name(file);
    if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
    return failed(path, "cannot be removed", errno);
  }

 private:
  // Errors: kNotFound where the folder was removed meanwhile; kCancelled where somebody has it, whose mark
  // this is (not held if its lock's file was deleted); kInvalidArgument.
  Status lock_once(const DiskLockWish& wish, DiskLockMark& mark) {
    std::error_code error;
    const std::filesystem::path parent = std::filesystem::path(path_).parent_path();
    if (!parent.empty()) std::filesystem::create_directories(parent, error);
    if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
      return invalid_argument(fmt::format("{}: cannot be made: {}", path_, errno_text(errno)), "disk");
    }
    const Descriptor folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.is_open()) return not_opened(errno);
    // (In the folder that is open: it may have another name by now.)
    Descriptor opened(::openat(folder.get(), kLockFileName, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!opened.is_open()) return not_opened(errno);
    const auto file = std::make_shared<RealFile>(std::move(opened), 0, false);
    Result<DiskLock> lock = take_disk_lock(folder.get(), file);
    if (lock.status().code() == StatusCode::kCancelled) mark = read_disk_lock(*file);
    if (lock.status().code() == StatusCode::kUnavailable)
      return invalid_argument(fmt::format("{}: {}", path_, lock.status().message()), "disk");
    // Whoever removes a folder has its lock until all of it is gone, and others have another folder by then.
    if (!is_there(*file)) return not_found(fmt::format("{}: it was removed meanwhile", path_));
    if (!lock.ok()) return lock.status();
    mark_disk_lock(*file, wish.for_a_moment);
    lock_ = std::move(*lock);
    return {};
  }

  Status not_opened(int error) const {
    const std::string line = fmt::format("{}: cannot be written: {}", path_, errno_text(error));
    return error == ENOENT ? not_found(line) : invalid_argument(line, "disk");
  }

  // The file is the folder's lock: not one that was removed, or whose folder was.
  bool is_there(const DiskFile& lock_file) const {
    struct stat held{}, there{};
    return ::fstat(lock_file.descriptor(), &held) == 0 && ::stat(name(kLockFileName).c_str(), &there) == 0 &&
           held.st_dev == there.st_dev && held.st_ino == there.st_ino;
  }

  // The folder that is locked has its name still.
  bool is_same_folder() const {
    struct stat held{}, there{};
    return ::fstat(lock_->folder.get(), &held) == 0 && ::stat(path_.c_str(), &there) == 0 &&
           held.st_dev == there.st_dev && held.st_ino == there.st_ino;
  }

  std::string once(std::string line) {
    if (line == said_) return {};
    said_ = line;
    return line;
  }

  std::string name(std::string_view file) const { return fmt::format("{}/{}", path_, file); }

  static Status failed(const std::string& path, std::string_view what, int error) {
    return {code_of_failed_write(error), fmt::format("{}: {}: {}", path, what, errno_text(error)), "disk"};
  }

  Result<std::shared_ptr<DiskFile>> open_file(std::string_view file, int flags, FileCaching caching) {
    const std::string path = name(file);
    Descriptor opened(-1);
    bool direct = caching == FileCaching::kDirect;
    if (direct) {
      opened = Descriptor(::open(path.c_str(), flags | O_CLOEXEC | O_DIRECT));
      direct = opened.get() >= 0 && direct_works(opened.get());
    }
    if (!direct) opened = Descriptor(::open(path.c_str(), flags | O_CLOEXEC));
    if (opened.get() < 0 && errno == ENOENT) return not_found(path + ": not there");
    if (opened.get() < 0) return failed(path, "cannot be opened", errno);
    struct stat facts{};
    if (::fstat(opened.get(), &facts) != 0) return failed(path, "cannot be opened", errno);
    return std::shared_ptr<DiskFile>(
        std::make_shared<RealFile>(std::move(opened), static_cast<std::uint64_t>(facts.st_size), direct));
  }

  std::string path_;
  std::optional<DiskLock> lock_;
  // Of keep_lock(): how often in a row somebody else had the new file, and what was said of that.
  int other_holders_ = 0;
  std::string said_;
};

}  // namespace

std::unique_ptr<DiskFolder> make_disk_folder(std::string path) {
  return std::make_unique<RealFolder>(std::move(path));
}

Result<std::shared_ptr<DiskFile>> open_disk_file_to_read(const std::string& path) {
  Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts{};
  if (opened.get() < 0 || ::fstat(opened.get(), &facts) != 0) {
    const int error = errno;
    return Status(error == ENOENT ? StatusCode::kNotFound : StatusCode::kUnavailable,
                  fmt::format("{}: {}", path, errno_text(error)));
  }
  return std::shared_ptr<DiskFile>(
      std::make_shared<RealFile>(std::move(opened), static_cast<std::uint64_t>(facts.st_size), false));
}

Result<std::shared_ptr<DiskFile>> open_disk_file_in(int directory, const std::string& name,
                                                    DiskAccess access) {
  const int flags = (access == DiskAccess::kRead ? O_RDONLY : O_RDWR) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Descriptor opened(::openat(directory, name.c_str(), flags));
  const int error = errno;
  struct stat facts{};
  if (opened.is_open() && ::fstat(opened.get(), &facts) == 0 && S_ISREG(facts.st_mode)) {
    return std::shared_ptr<DiskFile>(
        std::make_shared<RealFile>(std::move(opened), static_cast<std::uint64_t>(facts.st_size), false));
  }
  if (opened.is_open() || error == ELOOP || error == EISDIR || error == ENXIO)
    return data_loss(fmt::format("{}: expected a file, found a link, a folder or a device", name));
  return Status(error == ENOENT ? StatusCode::kNotFound : StatusCode::kUnavailable,
                fmt::format("{}: {}", name, errno_text(error)));
}

int disk_folder_user(const std::string& path) {
  const auto file = open_disk_file_to_read(path + "/" + kLockFileName);
  if (!file.ok()) return 0;
  const DiskLockMark mark = read_disk_lock(**file);
  if (!mark.held) return 0;
  const int process = process_of(mark);
  return process > 0 ? process : -1;
}

bool names_its_time(const DiskLockMark& mark) { return mark.text.size() == kLockMarkBytes; }

bool is_of_a_moment(const DiskLockMark& mark) {
  return mark.held && names_its_time(mark) && mark.text[kLockMarkUseAt] == kForAMoment;
}

DiskLockMark read_disk_lock(const DiskFile& lock_file) {
  DiskLockMark mark;
  mark.text.resize(kLockMarkBytes + 1);
  const ssize_t got = ::pread(lock_file.descriptor(), mark.text.data(), mark.text.size(), 0);
  mark.text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  // Asked after the reading: who takes it between writes another mark.
  struct flock lock = whole_file_lock();
  mark.held = ::fcntl(lock_file.descriptor(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  return mark;
}

Result<DiskLock> take_disk_lock(int folder, std::shared_ptr<DiskFile> lock_file) {
  struct flock lock = whole_file_lock();
  if (::fcntl(lock_file->descriptor(), F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES) return Status(StatusCode::kCancelled, "somebody has it");
    return Status(StatusCode::kUnavailable, fmt::format("cannot be locked: {}", errno_text(errno)));
  }
  // A descriptor of its own: the lock goes with it.
  DiskLock taken{.file = std::move(lock_file),
                 .folder = Descriptor(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC))};
  if (!taken.folder.is_open())
    return Status(StatusCode::kUnavailable, fmt::format("cannot be locked: {}", errno_text(errno)));
  if (::flock(taken.folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return Status(StatusCode::kCancelled, "somebody has it, whose lock's file was deleted");
  return taken;
}

DiskLockMark mark_disk_lock(DiskFile& lock_file, bool for_a_moment) {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number)
    number = static_cast<std::uint64_t>(SystemClock().now());
  DiskLockMark mark{.held = true,
                    .text = fmt::format("{:<{}}{}{:016x}\n", ::getpid(), kLockMarkUseAt,
                                        for_a_moment ? kForAMoment : kServes, number)};
  // In its place, as a full disk has room for that. Where it is refused no mark is better than an old one.
  const auto bytes = std::as_bytes(std::span(mark.text));
  if (lock_file.write(0, bytes) == static_cast<std::int64_t>(bytes.size())) return mark;
  (void)lock_file.grow(0);
  mark.text.clear();
  return mark;
}

std::string errno_text(int error) { return std::generic_category().message(error); }

}  // namespace loci
