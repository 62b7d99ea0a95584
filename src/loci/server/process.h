// SPDX-License-Identifier: Apache-2.0
// What the commands that serve are as processes: their log, their limits, an operator's signals.
#pragma once

#include <spdlog/logger.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>

#include "loci/serve/telemetry/log_line.h"

namespace loci {

// To standard error, by a thread of its own: the network thread logs too, and must not wait for whoever
// reads.
std::shared_ptr<spdlog::logger> make_logger(LogFormat format, const std::string& level);

// As many connections as the system lets us have.
void raise_descriptor_limit();

// Before any thread starts, so that every thread inherits it.
void block_operator_signals();

// The signals of an operator, which are blocked and taken by waiting for them: SIGINT and SIGTERM stop,
// SIGUSR1 and SIGUSR2 make the log tell more and less.
class OperatorSignals {
 public:
  explicit OperatorSignals(spdlog::logger& log);

  // Waits for at most `time`, and sees to what is not a stop.
  bool stop_within(std::chrono::milliseconds time) const;

 private:
  void set_level(int level) const;

  spdlog::logger& log_;
  sigset_t set_;
};

}  // namespace loci
