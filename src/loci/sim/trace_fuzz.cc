// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes are a trace or a scenario that keeps its limits, or are refused with a message.
#include <cstddef>
#include <cstdint>
#include <string>

#include "loci/base/check.h"
#include "loci/sim/scenario.h"
#include "loci/sim/trace_readers.h"
#include "loci/sim/trace_source.h"
#include "loci/sim/trace_writer.h"

namespace {

constexpr std::uint64_t kDrawn = 100;  // requests, of formats from which they are drawn

// What was read and is written says the same again.
void check_written(const loci::sim::Trace& trace) {
  const loci::sim::TraceKey key{};
  const auto again = loci::sim::parse_trace(loci::sim::trace_text(trace, key), "again");
  LOCI_CHECK(again.ok(), again.status().message().c_str());
  LOCI_CHECK(again->requests() == trace.requests(), "every request is written");
}

void check(const loci::Result<loci::sim::Trace>& trace) {
  if (!trace.ok()) {
    LOCI_CHECK(!trace.status().message().empty(), "an error says what is wrong");
    return;
  }
  LOCI_CHECK(trace->requests() > 0, "a trace has requests");
  for (const loci::sim::Conversation& talk : trace->conversations) {
    LOCI_CHECK(!talk.turns.empty(), "a conversation has turns");
    for (const loci::sim::Turn& turn : talk.turns) {
      LOCI_CHECK(turn.at >= 0 && turn.after >= 0 && turn.reply_tokens > 0, "times and lengths are possible");
      const std::uint64_t tokens = loci::sim::tokens_of(turn.pieces);
      LOCI_CHECK(turn.reply.empty() || loci::sim::tokens_of(turn.reply) == turn.reply_tokens,
                 "a reply is named whole");
      LOCI_CHECK(tokens > 0 && tokens <= loci::sim::kTraceTokensMax, "a prompt has tokens, and not too many");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const std::string_view format : loci::sim::trace_formats()) {
    if (format == "log") continue;  // of the event log's own fuzz target
    auto trace =
        loci::sim::parse_source({.file = "trace", .format = std::string(format), .requests = kDrawn}, text);
    check(trace);
    if (trace.ok() && loci::sim::scale_times(*trace, 1).ok()) check_written(*trace);
  }
  // (A scenario may name a file of costs, which is not opened here.)
  const auto json = loci::sim::parse_scenario_text(text, "scenario");
  if (json.ok() && text.find("profile") == std::string::npos) {
    const auto scenario = loci::sim::parse_scenario(*json, "scenario");
    LOCI_CHECK(scenario.ok() || !scenario.status().message().empty(), "an error says what is wrong");
  }
  return 0;
}
