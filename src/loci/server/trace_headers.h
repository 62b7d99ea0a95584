// SPDX-License-Identifier: Apache-2.0
// Headers that requests to a collector of traces have beside the exporter's own: most often a key. No error
// shows a part of one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/server/traces_options.h"

namespace loci {

inline constexpr std::size_t kTraceHeadersMax = 64;
inline constexpr std::size_t kTraceHeadersBytesMax = 8192;  // of the text that they are written in

// Whether a request can have this header: the name is a token of HTTP and none that the exporter sets itself
// (Content-Length), the value visible ASCII characters, blanks and tabs. Errors: kInvalidArgument without a
// field.
Status check_trace_header(std::string_view name, std::string_view value);

// "Name: value" on each line; empty lines, and those that begin with '#', count for nothing.
// Errors: kInvalidArgument without a field; the message has the number of the line.
Result<TraceHeaders> parse_trace_headers(std::string_view text);

// The same of a file that its owner alone may read (0600). Never waits for a pipe. Thread-safe.
// Errors, whose field is `trace_headers`: kNotFound, kUnavailable, kInvalidArgument. The message names the
// path.
Result<TraceHeaders> read_trace_headers(const std::string& path);

}  // namespace loci
