// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/trace_source.h"

#include <fmt/format.h>

#include "loci/sim/fields.h"
#include "loci/sim/packed_file.h"
#include "loci/sim/servegen.h"
#include "loci/sim/trace_of_log.h"
#include "loci/sim/trace_readers.h"
#include "loci/sim/weka.h"

namespace loci::sim {
namespace {

Result<Trace> parse_sessions(const TraceSource& source, const std::string& text) {
  LOCI_ASSIGN_OR_RETURN(const std::vector<WekaSession> sessions, parse_weka(text, source.file));
  return trace_of_sessions(sessions, source.file, source.rate, source.seed);
}

Result<Trace> parse_clients(const TraceSource& source, const std::string& text) {
  LOCI_ASSIGN_OR_RETURN(const std::vector<ServegenClient> clients, parse_servegen(text, source.file));
  return draw_servegen(
      clients, source.file,
      {.requests = source.requests, .from_s = source.from_s, .model = source.model, .seed = source.seed});
}

struct TextFormat {
  std::string_view name;
  Result<Trace> (*parse)(const TraceSource& source, const std::string& text);
};

constexpr TextFormat kTextFormats[] = {
    {"loci",
     [](const TraceSource& source, const std::string& text) { return parse_trace(text, source.file); }},
    {"mooncake",
     [](const TraceSource& source, const std::string& text) { return parse_mooncake(text, source.file); }},
    {"weka", parse_sessions},
    {"azure",
     [](const TraceSource& source, const std::string& text) { return parse_azure(text, source.file); }},
    {"arena-clients",
     [](const TraceSource& source, const std::string& text) { return parse_arena(text, source.file); }},
    {"servegen", parse_clients},
};

}  // namespace

const std::vector<std::string_view>& trace_formats() {
  static const std::vector<std::string_view> kFormats = [] {
    std::vector<std::string_view> names;
    for (const TextFormat& format : kTextFormats) names.push_back(format.name);
    names.push_back("log");
    return names;
  }();
  return kFormats;
}

Result<Trace> parse_source(const TraceSource& source, const std::string& text) {
  for (const TextFormat& format : kTextFormats) {
    if (format.name == source.format) return format.parse(source, text);
  }
  return invalid_argument(
      fmt::format("trace.format: expected one of {}, found '{}'", joined(trace_formats()), source.format),
      "trace.format");
}

Result<Trace> read_source(const TraceSource& source) {
  Result<Trace> trace = [&]() -> Result<Trace> {
    if (source.format == "log") return trace_of_log(source.file);
    LOCI_ASSIGN_OR_RETURN(const std::string text, read_text(source.file));
    return parse_source(source, text);
  }();
  if (!trace.ok()) return trace;
  if (source.requests > 0) keep_first(*trace, source.requests);
  LOCI_RETURN_IF_ERROR(scale_times(*trace, source.time_scale));
  return trace;
}

}  // namespace loci::sim
