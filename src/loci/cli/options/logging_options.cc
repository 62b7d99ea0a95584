// SPDX-License-Identifier: Apache-2.0
// What is written about the server's work.
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"

namespace loci {

std::vector<Option> logging_options() {
  const std::string group = "logging";
  const auto parse_format = [](const std::string& name) {
    return Result<LogFormat>(name == "json" ? LogFormat::kJson : LogFormat::kText);
  };
  const auto format_name = [](LogFormat format) {
    return std::string(format == LogFormat::kJson ? "json" : "text");
  };
  return {
      choice_option(
          {group, "--log-level",
           "the least severe lines that are logged; SIGUSR1 makes a running server log more, SIGUSR2 less"},
          "LEVEL", {"trace", "debug", "info", "warn", "error", "off"},
          [](auto& flags) -> auto& { return flags.log_level; }),
      choice_option(
          {group, "--log-format",
           "the form of the log: lines for people (text), or one JSON object a line (json)"},
          "FORMAT", {"text", "json"}, [](auto& flags) -> auto& { return flags.log_format; }, parse_format,
          format_name),
      switch_option({group, "--access-log", "log one line for each request"},
                    [](auto& flags) -> auto& { return flags.access_log; }),
      text_option({group, "--traces",
                   "the URL of a collector to which spans of requests are sent, as OTLP by HTTP, such as "
                   "http://127.0.0.1:4318; without a path spans go to /v1/traces there"},
                  "URL", [](auto& flags) -> auto& { return flags.traces.url; }),
      number_option(
          {group, "--trace-share",
           "of the requests that bring no trace of their own (header traceparent), the share that "
           "is traced, from 0 to 1"},
          [](auto& flags) -> auto& { return flags.traces.share; }, 0, 1),
      path_option({group, "--trace-headers",
                   "a file with headers for the collector of traces, such as a key, one NAME: VALUE on each "
                   "line, which its owner alone may read; the server reads the file again when it sends"},
                  [](auto& flags) -> auto& { return flags.traces.headers_file; }),
  };
}

}  // namespace loci
