// SPDX-License-Identifier: Apache-2.0
// The environment's variables OTEL_..., by which OpenTelemetry's specification configures every program
// alike, as far as they say something of traces (docs/operations.md has the table).
//
// They decide only what Loci itself was not told by a flag, a variable LOCI_... or its file, and none of them
// but OTEL_TRACES_EXPORTER=otlp makes a server send anything: a platform that gives all programs the address
// of its collector has not asked this one for spans.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/base/status.h"
#include "loci/server/traces_options.h"

namespace loci {

inline constexpr std::size_t kOtelMembersMax = 64;
inline constexpr std::size_t kOtelListBytesMax = 8192;

// Which of the options Loci itself was told.
struct OtelTold {
  bool url = false;  // also where it is empty, which turns traces off
  bool share = false;
};

struct OtelNews {
  std::string url_from, share_from;   // the variable that decided it; empty: none did
  std::vector<std::string> warnings;  // what was wrong, each with its variable's name
  std::vector<std::string> notes;     // what an operator may have expected otherwise
};

// Takes from the environment ("NAME=value", all of it) what `traces` lacks. A value that is wrong is an error
// if Loci itself was told to trace: kInvalidArgument, whose field is the variable, and which shows no part of
// a header. Else it is a warning, and nothing is traced.
Result<OtelNews> apply_otel_environment(const std::vector<std::string>& environment, const OtelTold& told,
                                        TracesOptions& traces);

// "name=value,name=value", with %XX for what stands for something there. Blanks around names and values, and
// members that are empty, count for nothing; of a name that is there twice the last value counts.
// Errors: kInvalidArgument without a field; the message has the member's number, and no part of it.
Result<TraceHeaders> parse_otel_headers(std::string_view text);
Result<std::vector<std::pair<std::string, std::string>>> parse_otel_attributes(std::string_view text);

}  // namespace loci
