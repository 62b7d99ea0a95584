// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/serve_report.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "loci/base/printable.h"
#include "loci/base/units.h"
#include "loci/base/version.h"
#include "loci/cli/status_text.h"

namespace loci {
namespace {

std::string flags_of(const ReportRow& row) {
  std::string out;
  for (const std::string& name : row.options) out += (out.empty() ? "" : " ") + flag_of(name);
  return out;
}

// Three columns; the flags that change a row stand in the last.
std::string table(const std::vector<ReportRow>& rows) {
  std::size_t width = 0;
  for (const ReportRow& row : rows) {
    if (!row.options.empty()) width = std::max(width, row.value.size());
  }
  std::string out;
  for (const ReportRow& row : rows) {
    // The names of a model and of its file may have been chosen by a stranger.
    const std::string value = printable(row.value, LineEnds::kReplace);
    out += row.options.empty() ? fmt::format("  {:<15}{}\n", row.name, value)
                               : fmt::format("  {:<15}{:<{}}   {}\n", row.name, value, width, flags_of(row));
  }
  return out;
}

// A member for each row.
LogLine configuration_line(const ServerReport& report) {
  LogLine line("configuration");
  line.text("version", kVersion);
  for (const ReportRow& row : report.rows) {
    if (row.name.empty()) continue;  // more of the row before
    std::string name = row.name;
    std::replace(name.begin(), name.end(), ' ', '_');
    line.text(name, row.value);
  }
  return line;
}

// To standard output.
void print_lines(const std::vector<LogLine>& lines, LogFormat format) {
  spdlog::logger out("loci", std::make_shared<spdlog::sinks::stdout_sink_st>());
  out.set_formatter(log_formatter(format));
  for (const LogLine& line : lines) log(out, spdlog::level::info, line);
  out.flush();
}

}  // namespace

std::string describe_report(const ServerReport& report) {
  std::string out = fmt::format("Loci {}\n{}", kVersion, table(report.rows));
  if (!report.note.empty()) out += fmt::format("  note: {}\n", report.note);
  const char* path = report.has_chat_template ? "/v1/chat/completions" : "/v1/completions";
  const char* body = report.has_chat_template
                         ? R"({"messages": [{"role": "user", "content": "Hello"}], "stream": true})"
                         : R"({"prompt": "Hello", "max_tokens": 32, "stream": true})";
  out += fmt::format("ready in {}: {}\n", format_duration(report.loading), report.url);
  // `loci chat` finds the key there by itself.
  if (report.has_keys) out += "  with one of the keys in LOCI_API_KEY:\n";
  const char* key = report.has_keys ? R"( -H "Authorization: Bearer $LOCI_API_KEY")" : "";
  return out + fmt::format(
                   "  curl -N {}{}{} -H 'Content-Type: application/json' \\\n    -d '{}'\n  loci chat {}{}\n",
                   report.url, path, key, body, report.url,
                   report.has_page ? ", or open it in a browser" : "");
}

void print_report(const ServerReport& report, LogFormat format) {
  if (format == LogFormat::kText) {
    fmt::print("{}", describe_report(report));
    std::fflush(stdout);
  } else {
    print_lines({configuration_line(report),
                 LogLine("ready").text("url", report.url).duration("loading", report.loading)},
                format);
  }
}

void print_front_ready(const std::string& url, LogFormat format) {
  if (format == LogFormat::kText) {
    fmt::print("ready: {}\n", url);
    std::fflush(stdout);
  } else {
    print_lines({LogLine("ready").text("url", url)}, format);
  }
}

}  // namespace loci
