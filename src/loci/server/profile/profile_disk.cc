// SPDX-License-Identifier: Apache-2.0
#include "loci/server/profile/profile_disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "loci/base/random.h"
#include "loci/base/units.h"
#include "loci/server/profile/profile_timing.h"

namespace loci {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::uint64_t kPage = 4096;
constexpr unsigned kRequestsAtOnce = 8;
constexpr int kLatencyTries = 64;

Nanos since(SteadyClock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now() - begin).count();
}

struct Freed {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte, Freed>;

Buffer aligned_buffer(std::uint64_t bytes, std::uint64_t seed) {
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes)));
  if (!buffer) return buffer;
  for (std::uint64_t at = 0; at + 8 <= bytes; at += 8) {  // nothing that could be compressed
    const std::uint64_t word = random_word(seed, at);
    std::memcpy(buffer.get() + at, &word, 8);
  }
  return buffer;
}

// An unlinked file.
class ScratchFile {
 public:
  ScratchFile() = default;
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  Status open(const std::string& directory) {
    const std::string path = fmt::format("{}/.loci-profile-{}", directory, ::getpid());
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
    fd_ = ::open(path.c_str(), flags | O_DIRECT, 0600);
    direct_ = fd_ >= 0;
    // A file system without O_DIRECT says so only after it has made the file.
    if (fd_ < 0 && errno == EINVAL) {
      ::unlink(path.c_str());
      fd_ = ::open(path.c_str(), flags, 0600);
    }
    if (fd_ < 0) return Status(StatusCode::kUnavailable, fmt::format("{}: {}", path, std::strerror(errno)));
    ::unlink(path.c_str());
    return {};
  }
  int fd() const { return fd_; }
  bool direct() const { return direct_; }
  // So that what is read next is not in memory.
  void forget_pages() const {
    if (direct_) return;
    ::fdatasync(fd_);
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
  }

 private:
  int fd_ = -1;
  bool direct_ = false;
};

enum class Way { kRead, kWrite };

bool transfer(int fd, Way way, std::byte* buffer, std::uint64_t bytes, std::uint64_t offset) {
  const ssize_t done = way == Way::kRead ? ::pread(fd, buffer, bytes, static_cast<off_t>(offset))
                                         : ::pwrite(fd, buffer, bytes, static_cast<off_t>(offset));
  return done == static_cast<ssize_t>(bytes);
}

struct Stream {
  std::uint64_t bytes = 0;
  Nanos took = 0;
  bool ok = true;
};

// Requests [0, count) of `request` bytes each, several at once, until the time is up.
// What is read is verified, as the disk store does.
Stream run_stream(int fd, Way way, std::uint64_t request, std::uint64_t count, Nanos limit,
                  const std::function<bool()>& stop) {
  std::atomic<std::uint64_t> next = 0, done = 0, checks = 0;
  std::atomic<bool> ok = true;
  std::vector<Buffer> buffers;
  for (unsigned t = 0; t < kRequestsAtOnce; ++t) {
    buffers.push_back(aligned_buffer(request, t));
    if (!buffers.back()) return {.ok = false};
  }
  const SteadyClock::time_point begin = SteadyClock::now();
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < kRequestsAtOnce; ++t) {
      threads.emplace_back([&, t] {
        while (ok && since(begin) < limit && !(stop && stop())) {
          const std::uint64_t i = next.fetch_add(1);
          if (i >= count) return;
          if (!transfer(fd, way, buffers[t].get(), request, i * request)) ok = false;
          if (way == Way::kRead) checks.fetch_xor(XXH3_64bits(buffers[t].get(), request));
          done.fetch_add(1);
        }
      });
    }
  }
  return {done * request, since(begin), ok};
}

// The median of single requests of a page, anywhere in what was written.
Nanos measure_latency(int fd, Way way, std::uint64_t bytes) {
  const Buffer buffer = aligned_buffer(kPage, 99);
  if (!buffer || bytes < kPage) return 0;
  Random random(5);
  std::vector<Nanos> times;
  for (int i = 0; i < kLatencyTries; ++i) {
    const std::uint64_t offset = random.below(bytes / kPage) * kPage;
    const SteadyClock::time_point begin = SteadyClock::now();
    if (!transfer(fd, way, buffer.get(), kPage, offset)) return 0;
    times.push_back(since(begin));
  }
  std::nth_element(times.begin(), times.begin() + kLatencyTries / 2, times.end());
  return times[kLatencyTries / 2];
}

std::uint64_t rate_of(const Stream& stream) {
  const double seconds = static_cast<double>(std::max<Nanos>(stream.took, 1)) / 1e9;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(stream.bytes) / seconds));
}

// What direct I/O takes.
std::uint64_t read_size(std::uint64_t bytes) {
  return std::clamp<std::uint64_t>((bytes + kPage - 1) / kPage, 1, 2048) * kPage;
}

Status check_space(const DiskMeasureOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  struct statvfs space{};
  if (::statvfs(options.directory.c_str(), &space) != 0) {
    return Status(StatusCode::kUnavailable, fmt::format("{}: {}", options.directory, std::strerror(errno)));
  }
  const std::uint64_t free = std::uint64_t{space.f_bavail} * space.f_frsize;
  if (free / 4 >= options.file_bytes) return {};
  return resource_exhausted(fmt::format("{}: expected {} free for a measurement, found {}", options.directory,
                                        format_bytes(options.file_bytes * 4), format_bytes(free)));
}

}  // namespace

Result<DiskMeasurement> measure_disk(const DiskMeasureOptions& options) {
  LOCI_RETURN_IF_ERROR(check_space(options));
  ScratchFile file;
  LOCI_RETURN_IF_ERROR(file.open(options.directory));
  const std::uint64_t request = read_size(options.request_bytes);
  const std::uint64_t count = std::max<std::uint64_t>(options.file_bytes / request, 1);
  const auto stopped = [&options] { return options.stop && options.stop(); };
  const Stream written = run_stream(file.fd(), Way::kWrite, request, count, options.time_limit, options.stop);
  DiskMeasurement out;
  out.direct = file.direct();
  std::vector<std::uint64_t> sizes = {request};
  for (const std::uint64_t size : options.read_sizes) sizes.push_back(read_size(size));
  for (const std::uint64_t size : sizes) {
    if (stopped()) return Status(StatusCode::kCancelled, "the measurement was stopped");
    file.forget_pages();
    const Nanos before = processor_time();
    const Stream read =
        run_stream(file.fd(), Way::kRead, size, written.bytes / size, options.time_limit, options.stop);
    const Nanos processor = processor_time() - before;
    if (!written.ok || !read.ok) {
      return Status(StatusCode::kUnavailable,
                    fmt::format("{}: reading or writing failed", options.directory));
    }
    if (read.bytes == 0) continue;  // larger than what was written
    out.reads.push_back({size, rate_of(read)});
    if (size == request && out.reads.size() == 1) out.charge = charge_per_mib(processor, read.bytes);
  }
  if (stopped()) return Status(StatusCode::kCancelled, "the measurement was stopped");
  if (out.reads.empty() || out.reads.front().bytes != request) {
    return Status(
        StatusCode::kUnavailable,
        fmt::format("{}: the disk did not answer in the time for a measurement", options.directory));
  }
  file.forget_pages();
  out.read = {measure_latency(file.fd(), Way::kRead, written.bytes), out.reads.front().bytes_per_second};
  out.write = {measure_latency(file.fd(), Way::kWrite, written.bytes), rate_of(written)};
  std::sort(out.reads.begin(), out.reads.end(),
            [](const ReadRate& a, const ReadRate& b) { return a.bytes < b.bytes; });
  return out;
}

}  // namespace loci
