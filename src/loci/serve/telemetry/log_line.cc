// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/telemetry/log_line.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <random>

#include "loci/base/units.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

// Begins the payload of a LogLine. Nobody outside knows it, so no message can pass for one.
const std::string& mark() {
  static const std::string value = [] {
    std::random_device device;
    return fmt::format("\x1f{:08x}{:08x}\x1f", device(), device());
  }();
  return value;
}

std::string json_string(std::string_view value) { return dump_json(Json(value)); }

// Visible ASCII and blanks. Other bytes may end a line, move a terminal's cursor, or turn its text around
// (and they need not be UTF-8).
std::string printable(std::string_view value) {
  std::string out;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

// Quoted where it would not be read back as one value.
std::string text_value(std::string_view value) {
  const bool plain = !value.empty() && std::none_of(value.begin(), value.end(), [](char c) {
    return c == ' ' || c == '"' || c == '=' || c == '\\';
  });
  if (plain) return printable(value);
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return printable(out) + "\"";
}

std::string compact_duration(Nanos value) {
  std::string out = format_duration(value);
  std::erase(out, ' ');
  return out;
}

// The two forms of a message.
struct Forms {
  std::string text;
  std::string members;
};

Forms forms_of(std::string_view payload) {
  if (!payload.starts_with(mark())) return {printable(payload), ""};
  payload.remove_prefix(mark().size());
  std::size_t length = 0;
  const auto [end, error] = std::from_chars(payload.data(), payload.data() + payload.size(), length);
  payload.remove_prefix(static_cast<std::size_t>(end - payload.data()) + 1);
  return {std::string(payload.substr(0, length)), std::string(payload.substr(length))};
}

class Formatter final : public spdlog::formatter {
 public:
  explicit Formatter(LogFormat format) : format_(format) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::string_view payload(message.payload.data(), message.payload.size());
    const std::string_view level(spdlog::level::to_string_view(message.level).data(),
                                 spdlog::level::to_string_view(message.level).size());
    const auto since = message.time.time_since_epoch();
    const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(since).count() % 1000;
    const std::time_t seconds = std::chrono::system_clock::to_time_t(message.time);
    if (format_ == LogFormat::kJson) {
      const Forms forms = forms_of(payload);
      const std::string message_member =
          forms.members.empty() ? ",\"message\":" + json_string(payload) : forms.members;
      fmt::format_to(std::back_inserter(out),
                     "{{\"time\":\"{:%Y-%m-%dT%H:%M:%S}.{:03}Z\",\"level\":\"{}\"{}}}\n",
                     fmt::gmtime(seconds), milliseconds, level, message_member);
      return;
    }
    fmt::format_to(std::back_inserter(out), "{:%Y-%m-%d %H:%M:%S}.{:03} ", fmt::localtime(seconds),
                   milliseconds);
    message.color_range_start = out.size();
    fmt::format_to(std::back_inserter(out), "{}", level);
    message.color_range_end = out.size();
    fmt::format_to(std::back_inserter(out), " {}\n", forms_of(payload).text);
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<Formatter>(format_); }

 private:
  LogFormat format_;
};

}  // namespace

LogLine::LogLine(std::string_view message)
    : text_(printable(message)), members_(",\"message\":" + json_string(message)) {}

LogLine& LogLine::text(std::string_view name, std::string_view value) {
  text_ += fmt::format(" {}={}", name, text_value(value));
  members_ += fmt::format(",\"{}\":{}", name, json_string(value));
  return *this;
}

LogLine& LogLine::count(std::string_view name, std::int64_t value) {
  text_ += fmt::format(" {}={}", name, value);
  members_ += fmt::format(",\"{}\":{}", name, value);
  return *this;
}

LogLine& LogLine::number(std::string_view name, double value) {
  text_ += fmt::format(" {}={:.1f}", name, value);
  members_ += fmt::format(",\"{}\":{}", name, value);
  return *this;
}

LogLine& LogLine::duration(std::string_view name, Nanos value) {
  text_ += fmt::format(" {}={}", name, compact_duration(value));
  members_ += fmt::format(",\"{}_ms\":{:.3f}", name, static_cast<double>(value) / 1e6);
  return *this;
}

std::string LogLine::payload() const {
  return fmt::format("{}{}:{}{}", mark(), text_.size(), text_, members_);
}

void log(spdlog::logger& logger, spdlog::level::level_enum level, const LogLine& line) {
  if (logger.should_log(level)) logger.log(level, line.payload());
}

std::unique_ptr<spdlog::formatter> log_formatter(LogFormat format) {
  return std::make_unique<Formatter>(format);
}

}  // namespace loci
