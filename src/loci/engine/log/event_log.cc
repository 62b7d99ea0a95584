// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/log/event_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "loci/base/little_endian.h"
#include "loci/engine/log/event_log_codec.h"

namespace loci {
namespace {

constexpr std::string_view kMagic = "LOCILOG\n";
constexpr std::uint32_t kConfigBytesMax = 64 * 1024;
constexpr std::uint32_t kRecordBytesMax = 256u * 1024 * 1024;
constexpr mode_t kOwnersMode = S_IRUSR | S_IWUSR;
constexpr int kOpenTries = 8;                 // the second one finds no file, unless another process made one
constexpr std::size_t kRecordHeadBytes = 16;  // u32 size, u32 check of the size, u64 check of the payload

enum class RecordKind : std::uint8_t { kEvent = 1, kPlan = 2 };

// The record's number is in its checks, so records that were lost or moved show.
std::uint32_t size_check(std::uint32_t size, std::uint64_t number) {
  std::string bytes;
  put_number(bytes, size);
  return static_cast<std::uint32_t>(XXH3_64bits_withSeed(bytes.data(), bytes.size(), ~number));
}

std::uint64_t payload_check(std::string_view payload, std::uint64_t number) {
  return XXH3_64bits_withSeed(payload.data(), payload.size(), number);
}

// Of the option that names the log to write.
Status log_error(std::string message) { return {StatusCode::kUnavailable, std::move(message), "event_log"}; }

Status io_error(const std::string& path, int error) {
  return log_error(fmt::format("{}: {}", path, std::strerror(error)));
}

// Until the descriptor is closed, whatever ends the process. A file of two logs could not be replayed.
Status lock_log(const std::string& path, int descriptor) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(descriptor, F_OFD_SETLK, &lock) == 0) return {};
  if (errno == EAGAIN || errno == EACCES)
    return log_error(
        fmt::format("{}: another process writes its events there; stop it, or name another file", path));
  return log_error(fmt::format("{}: cannot be locked: {}", path, std::strerror(errno)));
}

// A name that was mistaken costs nobody a file that is no log. (One that was cut off may have less than a
// head.)
Status check_is_log(const std::string& path) {
  std::string head(kMagic.size(), '\0');
  const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "rbe"));
  if (!file) return io_error(path, errno);
  head.resize(std::fread(head.data(), 1, head.size(), file.get()));
  if (std::ferror(file.get()) != 0) return io_error(path, errno);
  if (kMagic.starts_with(head)) return {};
  return log_error(
      fmt::format("{}: expected an event log, which begins with LOCILOG, or no file, found another file; "
                  "name another one",
                  path));
}

// What a path names is renamed, not a link to it.
Status set_aside(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  const std::string from = error ? path : real.string();
  if (std::filesystem::is_regular_file(from + ".1", error)) LOCI_RETURN_IF_ERROR(check_is_log(from + ".1"));
  if (::rename(from.c_str(), (from + ".1").c_str()) == 0) return {};
  return log_error(
      fmt::format("{}: the log of the process before cannot be renamed to {}.1 ({}); move it "
                  "away, or name another file",
                  path, from, std::strerror(errno)));
}

struct OpenedLog {
  std::unique_ptr<std::FILE, FileCloser> file;
  bool is_ready = false;  // it is empty, or a device
};

// Opens what the path names now; a file is locked first, and set aside if it has a log.
Result<OpenedLog> open_or_set_aside(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kOwnersMode);
  if (descriptor < 0) return io_error(path, errno);
  OpenedLog log;
  log.file.reset(::fdopen(descriptor, "wb"));
  if (!log.file) {
    const int error = errno;
    ::close(descriptor);
    return io_error(path, error);
  }
  struct stat facts{};
  if (::fstat(descriptor, &facts) != 0) return io_error(path, errno);
  log.is_ready = !S_ISREG(facts.st_mode);  // a device keeps its mode, and many may write to it
  if (log.is_ready) return log;
  LOCI_RETURN_IF_ERROR(lock_log(path, descriptor));
  // Whoever had the lock until now may have written to the file, or renamed it.
  struct stat named{};
  if (::fstat(descriptor, &facts) != 0) return io_error(path, errno);
  const bool is_named =
      ::stat(path.c_str(), &named) == 0 && named.st_dev == facts.st_dev && named.st_ino == facts.st_ino;
  if (!is_named) return log;
  log.is_ready = facts.st_size == 0;
  if (!log.is_ready) LOCI_RETURN_IF_ERROR(check_is_log(path));
  // A file that was there may have any mode.
  if (::fchmod(descriptor, kOwnersMode) != 0) return io_error(path, errno);
  if (!log.is_ready) LOCI_RETURN_IF_ERROR(set_aside(path));
  return log;
}

}  // namespace

// --- writer ---

Result<EventLogWriter> EventLogWriter::create(const std::string& path, const CoreConfig& config,
                                              LoggedSecret secret) {
  OpenedLog log;
  for (int tries = 0; !log.is_ready; ++tries) {
    if (tries == kOpenTries)
      return log_error(fmt::format("{}: other processes rename it all the time; name another file", path));
    LOCI_ASSIGN_OR_RETURN(log, open_or_set_aside(path));
  }
  std::unique_ptr<std::FILE, FileCloser> file = std::move(log.file);
  std::string config_bytes;
  encode_config(config, secret, config_bytes);
  std::string head(kMagic);
  put_number(head, kLogVersion);
  put_number(head, static_cast<std::uint32_t>(config_bytes.size()));
  head += config_bytes;
  put_number(head, XXH3_64bits(head.data(), head.size()));
  if (std::fwrite(head.data(), 1, head.size(), file.get()) != head.size() || std::fflush(file.get()) != 0) {
    return io_error(path, errno);
  }
  return EventLogWriter(std::move(file), path);
}

Status EventLogWriter::append(std::string_view payload) {
  if (!status_.ok()) return status_;
  std::string head;
  const auto size = static_cast<std::uint32_t>(payload.size());
  put_number(head, size);
  put_number(head, size_check(size, records_));
  put_number(head, payload_check(payload, records_));
  ++records_;
  if (std::fwrite(head.data(), 1, head.size(), file_.get()) != head.size() ||
      std::fwrite(payload.data(), 1, payload.size(), file_.get()) != payload.size() ||
      std::fflush(file_.get()) != 0) {
    status_ = io_error(path_, errno);
  }
  return status_;
}

Status EventLogWriter::append_event(Nanos now, const Event& event) {
  buffer_.clear();
  put_number(buffer_, static_cast<std::uint8_t>(RecordKind::kEvent));
  put_number(buffer_, now);
  encode_event(event, buffer_);
  return append(buffer_);
}

Status EventLogWriter::append_plan(const Plan& plan) {
  buffer_.clear();
  put_number(buffer_, static_cast<std::uint8_t>(RecordKind::kPlan));
  put_number(buffer_, plan_digest(plan));
  return append(buffer_);
}

// --- reader ---

bool EventLogReader::read(void* bytes, std::size_t size) {
  if (size > left_ || std::fread(bytes, 1, size, file_.get()) != size) return false;
  left_ -= size;
  return true;
}

Status EventLogReader::read_head(const std::string& path) {
  std::string head(kMagic.size() + 8, '\0');
  if (!read(head.data(), head.size()) || head.substr(0, kMagic.size()) != kMagic) {
    return data_loss(fmt::format("{}: expected an event log, which begins with LOCILOG", path), "magic");
  }
  FieldTaker fields(std::string_view(head).substr(kMagic.size()));
  const auto version = fields.number<std::uint32_t>();
  if (version != kLogVersion) {
    return data_loss(fmt::format("{}: expected version {}, found {}; the Loci that wrote the log replays it",
                                 path, kLogVersion, version),
                     "version");
  }
  const auto config_size = fields.number<std::uint32_t>();
  if (config_size > kConfigBytesMax || config_size + std::uint64_t{8} > left_) {
    return data_loss(fmt::format("{}: a configuration of {} bytes is announced, {} bytes are left", path,
                                 config_size, left_),
                     "config");
  }
  const std::size_t fixed = head.size();
  head.resize(fixed + config_size);
  std::string check(8, '\0');
  if (!read(&head[fixed], config_size) || !read(check.data(), 8) ||
      from_little_endian<std::uint64_t>(check) != XXH3_64bits(head.data(), head.size())) {
    return data_loss(fmt::format("{}: the head is damaged (its checksum differs)", path), "head");
  }
  auto config = decode_config(std::string_view(head).substr(fixed));
  if (!config.ok()) return config.status().with_context(path);
  config_ = std::move(config).value();
  return {};
}

Result<EventLogReader> EventLogReader::open(const std::string& path) {
  EventLogReader reader;
  reader.file_.reset(std::fopen(path.c_str(), "rbe"));
  struct stat facts{};
  if (!reader.file_ || ::fstat(::fileno(reader.file_.get()), &facts) != 0) {
    return not_found(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  reader.left_ = static_cast<std::uint64_t>(facts.st_size);
  LOCI_RETURN_IF_ERROR(reader.read_head(path));
  return reader;
}

Result<std::optional<std::string>> EventLogReader::next_payload() {
  using Payload = std::optional<std::string>;
  if (left_ == 0 || truncated_) return Payload();
  char head[kRecordHeadBytes];
  if (!read(head, sizeof head)) {
    truncated_ = true;
    return Payload();
  }
  FieldTaker fields({head, sizeof head});
  const auto size = fields.number<std::uint32_t>();
  if (fields.number<std::uint32_t>() != size_check(size, records_) || size > kRecordBytesMax) {
    return data_loss(
        fmt::format("after step {}: record {} is damaged (its size's checksum differs)", steps_, records_));
  }
  if (size > left_) {
    truncated_ = true;
    return Payload();
  }
  std::string payload(size, '\0');
  if (!read(payload.data(), size)) {
    truncated_ = true;
    return Payload();
  }
  if (fields.number<std::uint64_t>() != payload_check(payload, records_) || payload.empty()) {
    return data_loss(
        fmt::format("after step {}: record {} is damaged (its checksum differs)", steps_, records_));
  }
  ++records_;
  return Payload(std::move(payload));
}

Result<std::optional<LoggedStep>> EventLogReader::next() {
  LOCI_ASSIGN_OR_RETURN(std::optional<std::string> event, next_payload());
  if (!event) return std::optional<LoggedStep>();
  ++steps_;
  const auto unexpected = [this](const char* what) {
    return data_loss(fmt::format("step {}: expected {}", steps_, what));
  };
  if (event->front() != static_cast<char>(RecordKind::kEvent) || event->size() < 9) {
    return unexpected("the record of an event");
  }
  LoggedStep step;
  step.now = from_little_endian<Nanos>(std::string_view(*event).substr(1));
  auto decoded = decode_event(std::string_view(*event).substr(9));
  if (!decoded.ok()) return decoded.status().with_context(fmt::format("step {}", steps_));
  step.event = std::move(decoded).value();
  LOCI_ASSIGN_OR_RETURN(std::optional<std::string> plan, next_payload());
  if (plan) {
    if (plan->front() != static_cast<char>(RecordKind::kPlan) || plan->size() != 9) {
      return unexpected("the record of a plan");
    }
    step.plan_digest = from_little_endian<std::uint64_t>(std::string_view(*plan).substr(1));
  }
  return std::optional<LoggedStep>(std::move(step));
}

}  // namespace loci
