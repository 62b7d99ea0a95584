// SPDX-License-Identifier: Apache-2.0
// What `loci serve` and `loci route` print once they are ready: for people, or as lines of the log.
#pragma once

#include <string>

#include "loci/serve/telemetry/log_line.h"
#include "loci/server/server_report.h"

namespace loci {

// Writes the configuration in effect and the address to standard output.
void print_report(const ServerReport& report, LogFormat format);

// Of a front, which has no configuration to show.
void print_front_ready(const std::string& url, LogFormat format);

// The same as text: a row of the table is a line, with the flags that change it; then a request to try.
std::string describe_report(const ServerReport& report);

}  // namespace loci
