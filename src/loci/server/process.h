// SPDX-License-Identifier: Apache-2.0
// The process around a command that serves: its log, its limits, and an operator's signals.
#pragma once

#include <spdlog/logger.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>

#include "loci/serve/telemetry/log_line.h"

namespace loci {

// Logs to standard error on a thread of its own, because the network thread logs too and must not wait for a
// slow reader.
std::shared_ptr<spdlog::logger> make_logger(LogFormat format, const std::string& level);

// Writes what is still in the log's queue, and ends the log. If nobody takes it within kLogPatience, a full
// pipe, say, the process ends here with that exit code. Call it last.
inline constexpr std::chrono::seconds kLogPatience{2};
void end_log(int exit_code);

// Allows as many connections as the system permits.
void raise_descriptor_limit();

// Call it before any thread starts, so that every thread inherits it.
void block_operator_signals();

// The signals of an operator. They are blocked, and taken by waiting for them. SIGINT and SIGTERM stop the
// server, and so does a first SIGHUP, unless it was ignored at the start (the first of the others is the same
// wish then); SIGUSR1 makes the log tell more,
// SIGUSR2 less.
class OperatorSignals {
 public:
  explicit OperatorSignals(spdlog::logger& log);

  // Waits for a signal for at most `time`; true: the operator wants to stop. Carries out other signals.
  bool stop_within(std::chrono::milliseconds time) const;

 private:
  void set_level(int level) const;

  spdlog::logger& log_;
  sigset_t set_;
  // Of the one thread that waits.
  mutable bool is_stopping_ = false;
  mutable bool was_told_ = false;  // by SIGINT or SIGTERM
};

}  // namespace loci
