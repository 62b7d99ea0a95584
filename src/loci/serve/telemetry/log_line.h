// SPDX-License-Identifier: Apache-2.0
// Lines of the log that have fields, and the two forms in which the log is written: text for people, JSON
// (one object a line) for programs.
//
//   log(*services.log, spdlog::level::info, LogLine("access").text("request_id", id).count("status", 200));
//
//   2026-03-01 12:00:00.000 info access request_id=7f status=200
//   {"time":"2026-03-01T12:00:00.000Z","level":"info","message":"access","request_id":"7f","status":200}
//
// Names are snake_case and fixed; values may be any bytes: what is no UTF-8 is replaced in JSON, all that is
// no visible ASCII is escaped in text, so that no value begins a line or a field of its own.
#pragma once

#include <spdlog/formatter.h>
#include <spdlog/logger.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/serve/telemetry/log_format.h"

namespace loci {

// A value; thread-compatible.
class LogLine {
 public:
  explicit LogLine(std::string_view message);

  LogLine& text(std::string_view name, std::string_view value);
  LogLine& count(std::string_view name, std::int64_t value);
  LogLine& number(std::string_view name, double value);  // a finite one
  // Text: first=26.9ms; JSON: "first_ms":26.9
  LogLine& duration(std::string_view name, Nanos value);

  // Both forms, for log_formatter(); meaningless to others.
  std::string payload() const;

 private:
  std::string text_;
  std::string members_;  // of the JSON object: ,"name":value
};

void log(spdlog::logger& logger, spdlog::level::level_enum level, const LogLine& line);

// Writes plain messages and those made of a LogLine.
std::unique_ptr<spdlog::formatter> log_formatter(LogFormat format);

}  // namespace loci
