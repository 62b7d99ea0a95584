// SPDX-License-Identifier: Apache-2.0
// mooncake's traces: single requests with hashes of their blocks.
//
// The service wrote times down in steps, and many requests have the same one. Where they are 3 s apart, some
// ten requests would come at once and then none: a burst that nobody sent. They are spread over their step:
//
//   written down   0 0 0       3000 3000            6000
//   here           0 1000 2000 3000      4500       6000
//
// A step ends at the next time that occurs, but is at most as long as the median one: behind a pause the
// requests do not fill it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/sim/trace_line.h"
#include "loci/sim/trace_readers.h"

namespace loci::sim {
namespace {

constexpr std::uint64_t kMooncakeBlock = 512;

// The begin of each run of requests with the same time.
std::vector<std::size_t> groups_of(const std::vector<Conversation>& requests) {
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i == 0 || requests[i].turns[0].at != requests[i - 1].turns[0].at) begins.push_back(i);
  }
  return begins;
}

Nanos median_step(const std::vector<Conversation>& requests, const std::vector<std::size_t>& begins) {
  std::vector<Nanos> steps;
  for (std::size_t g = 1; g < begins.size(); ++g)
    steps.push_back(requests[begins[g]].turns[0].at - requests[begins[g - 1]].turns[0].at);
  if (steps.empty()) return 0;
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  return *middle;
}

void spread_over_steps(Trace& trace) {
  std::vector<Conversation>& requests = trace.conversations;
  const std::vector<std::size_t> begins = groups_of(requests);
  const Nanos usual = median_step(requests, begins);
  if (begins.size() == requests.size() || usual == 0) return;
  for (std::size_t g = 0; g < begins.size(); ++g) {
    const std::size_t begin = begins[g];
    const std::size_t end = g + 1 < begins.size() ? begins[g + 1] : requests.size();
    const Nanos at = requests[begin].turns[0].at;
    const Nanos step = end < requests.size() ? std::min(usual, requests[end].turns[0].at - at) : usual;
    const auto count = static_cast<Nanos>(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      Turn& turn = requests[i].turns[0];
      // In this order, since a step may take 10^18 ns.
      turn.at = turn.noted = at + step / count * static_cast<Nanos>(i - begin);
    }
  }
  trace.notes.push_back(
      fmt::format("{} requests have {} different times, in the median {:g} s apart: those of one time are "
                  "spread evenly until the next one, at most over so long",
                  requests.size(), begins.size(), static_cast<double>(usual) / kNanosPerSecond));
}

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
  spread_over_steps(trace);
  return trace;
}

}  // namespace loci::sim
