// SPDX-License-Identifier: Apache-2.0
// mooncake's traces: single requests with hashes of their blocks.
#include <utility>

#include "loci/sim/trace_line.h"
#include "loci/sim/trace_readers.h"

namespace loci::sim {
namespace {

constexpr std::uint64_t kMooncakeBlock = 512;

}  // namespace

Result<Trace> parse_mooncake(const std::string& text, const std::string& name) {
  Trace trace;
  trace.name = name;
  Nanos last = 0;
  LOCI_RETURN_IF_ERROR(each_trace_line(text, name, [&](const TraceLine& line) -> Status {
    Turn turn;
    turn.appends = false;
    LOCI_ASSIGN_OR_RETURN(turn.at, line.millis("timestamp"));
    if (turn.at < last) return line.wrong("timestamp", "times that do not go back", "an earlier one");
    last = turn.noted = turn.at;
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t prompt, line.count("input_length", 1, kTraceTokensMax));
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t reply, line.count("output_length", 1, kTraceTokensMax));
    turn.reply_tokens = static_cast<std::uint32_t>(reply);
    LOCI_ASSIGN_OR_RETURN(turn.pieces, line.hashes("hash_ids", prompt, kMooncakeBlock));
    trace.conversations.push_back({{std::move(turn)}});
    return {};
  }));
  return trace;
}

}  // namespace loci::sim
