// SPDX-License-Identifier: Apache-2.0
// The log of a core's life: its configuration, then every event with its time and the digest of the plan that
// it gave. Replaying it shows that every decision is reproduced (invariant 8), or which is the first that is
// not. After a crash it leads to the crash. The format is in docs/event-log.md.
//
// The log holds prompts. Only its owner may read the file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/plan.h"

namespace loci {

// Whether the log of a core with a disk, a shared store or peers contains the secret that keys blocks. A
// reader who has the secret can find the state of any tokens that he guesses, and forge entries. Without it a
// replay ends at the first entry that an earlier process left on the disk, and at the first block that a peer
// asks for.
enum class LoggedSecret : std::uint8_t { kLeftOut, kKept };

// A log's configuration, as read from the file.
struct LoggedConfig {
  CoreConfig core;
  LoggedSecret secret = LoggedSecret::kKept;  // also kKept if the core needs no secret
};

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Thread-compatible. For every step call append_event(), the core's step(), then append_plan(). Each record
// reaches the operating system at once, so a crash of the process loses none. After an error every call
// returns it.
class EventLogWriter {
 public:
  // Makes the file at `path`, and keeps it locked while the writer lives. One that has something is renamed
  // to PATH.1 first, in place of an older one: it may be the log of a crash. Errors: kUnavailable naming the
  // path and the reason, also where another process writes to it, which loses nothing.
  static Result<EventLogWriter> create(const std::string& path, const CoreConfig& config,
                                       LoggedSecret secret);

  Status append_event(Nanos now, const Event& event);
  Status append_plan(const Plan& plan);

 private:
  explicit EventLogWriter(std::unique_ptr<std::FILE, FileCloser> file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}
  Status append(std::string_view payload);

  std::unique_ptr<std::FILE, FileCloser> file_;
  std::string path_;
  std::uint64_t records_ = 0;
  std::string buffer_;
  Status status_;
};

struct LoggedStep {
  Nanos now = 0;
  Event event;
  std::optional<std::uint64_t> plan_digest;  // absent: the log ends with the event
};

// Reads a log step by step. Thread-compatible.
class EventLogReader {
 public:
  // Errors: kNotFound, kDataLoss (not a log, another version, a damaged header).
  static Result<EventLogReader> open(const std::string& path);

  const CoreConfig& config() const { return config_.core; }
  LoggedSecret secret() const { return config_.secret; }
  // Absent: the end. Errors: kDataLoss naming the step and what is wrong there.
  Result<std::optional<LoggedStep>> next();
  // True: the log ends inside a record, as after a crash; next() returned all whole records.
  bool truncated() const { return truncated_; }

 private:
  EventLogReader() = default;
  Status read_head(const std::string& path);
  Result<std::optional<std::string>> next_payload();
  bool read(void* bytes, std::size_t size);

  std::unique_ptr<std::FILE, FileCloser> file_;
  std::uint64_t left_ = 0;  // bytes of the file that are left to read
  LoggedConfig config_;
  std::uint64_t records_ = 0;
  std::uint64_t steps_ = 0;
  bool truncated_ = false;
};

struct ReplayReport {
  std::uint64_t steps = 0;     // steps that were replayed
  std::uint64_t compared = 0;  // of these, steps with the digest of a plan
  bool truncated = false;
};

// Called with each replayed step and the plan that it gave.
using ReplayListener = std::function<void(const LoggedStep&, const Plan&)>;

// Runs a core over the log and compares every plan's digest. Errors: as EventLogReader's; kInternal for the
// first plan that differs; kDataLoss for an event that cannot have happened; kUnimplemented for an event that
// needs the secret, if the log leaves it out. All name the step.
Result<ReplayReport> replay(const std::string& path, const ReplayListener& listener = {});

}  // namespace loci
