// SPDX-License-Identifier: Apache-2.0
// The log of a core's life: its configuration, then every event with its time and the digest of the plan
// that it gave. Replayed, it shows that every decision is reproduced (invariant 8), or the first that
// is not; after a crash it leads to the crash. The format is in docs/event-log.md.
//
// The log holds prompts. It is readable by its owner alone.
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

// Whether the log of a core with a disk, a shared store or peers has the secret that keys blocks. Whoever
// reads it can find the state of any tokens that he guesses, and forge entries; without it a log does not
// replay past entries that an earlier process left on the disk, nor past blocks that a peer asks for.
enum class LoggedSecret : std::uint8_t { kLeftOut, kKept };

// A log's configuration as it is read.
struct LoggedConfig {
  CoreConfig core;
  LoggedSecret secret = LoggedSecret::kKept;  // kept too where the core has no disk, and so needs none
};

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Thread-compatible. For every step: append_event(), step(), append_plan(). Each record reaches the
// operating system at once, so a crash of the process loses none. After an error every call returns it.
class EventLogWriter {
 public:
  // Replaces what is at `path`. Errors: kUnavailable naming the path and the reason.
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
  // Errors: kNotFound, kDataLoss (no log, another version, a damaged head).
  static Result<EventLogReader> open(const std::string& path);

  const CoreConfig& config() const { return config_.core; }
  LoggedSecret secret() const { return config_.secret; }
  // Absent: the end. Errors: kDataLoss naming the step and what is wrong there.
  Result<std::optional<LoggedStep>> next();
  // The log ends inside a record, as a crash leaves it; next() gave all that is whole.
  bool truncated() const { return truncated_; }

 private:
  EventLogReader() = default;
  Status read_head(const std::string& path);
  Result<std::optional<std::string>> next_payload();
  bool read(void* bytes, std::size_t size);

  std::unique_ptr<std::FILE, FileCloser> file_;
  std::uint64_t left_ = 0;  // bytes of the file
  LoggedConfig config_;
  std::uint64_t records_ = 0;
  std::uint64_t steps_ = 0;
  bool truncated_ = false;
};

struct ReplayReport {
  std::uint64_t steps = 0;     // replayed
  std::uint64_t compared = 0;  // of them, with the digest of a plan
  bool truncated = false;
};

// Is told of each step that was replayed, and of the plan that it gave.
using ReplayListener = std::function<void(const LoggedStep&, const Plan&)>;

// Runs a core over the log and compares every plan's digest. Errors: as EventLogReader's; kInternal for
// the first plan that differs, kDataLoss for an event that cannot have happened and kUnimplemented for one
// that needs the secret which the log leaves out, naming the step.
Result<ReplayReport> replay(const std::string& path, const ReplayListener& listener = {});

}  // namespace loci
