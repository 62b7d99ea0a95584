// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/call/access_log.h"

#include <cstdint>
#include <string>

#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

// Of a text that a client chose: it may fill a header, and a line of the log is for people.
constexpr std::size_t kShownBytesMax = 500;

// Every source; of the reasons for computing those that there are.
void add_sources(LogLine& line, const ContextSources& sources) {
  line.count("device_tokens", sources.device)
      .count("host_tokens", sources.host)
      .count("disk_tokens", sources.disk)
      .count("shared_tokens", sources.shared)
      .count("computed_tokens", static_cast<std::int64_t>(computed_tokens(sources)));
  for (std::size_t i = 0; i < kMissReasons; ++i) {
    if (sources.computed[i] == 0) continue;
    line.count("computed_" + std::string(miss_reason_name(static_cast<MissReason>(i))), sources.computed[i]);
  }
}

void add_generation(LogLine& line, const GenerationSummary& summary) {
  const ReplyUsage& usage = summary.usage;
  line.count("prompt_tokens", static_cast<std::int64_t>(usage.prompt_tokens))
      .count("cached_tokens", static_cast<std::int64_t>(usage.cached_tokens))
      .count("output_tokens", static_cast<std::int64_t>(usage.completion_tokens));
  add_sources(line, usage.explanation.sources);
  if (usage.dropped_tokens > 0) line.count("dropped_tokens", static_cast<std::int64_t>(usage.dropped_tokens));
  if (summary.prefill != PrefillEnd::kNone)
    line.text("prefill", prefill_end_name(summary.prefill)).duration("prefill_wait", summary.prefill_wait);
  if (summary.prefill_early > 0) line.count("prefill_early", summary.prefill_early);
  if (summary.choices > 1) line.count("choices", static_cast<std::int64_t>(summary.choices));
  if (summary.first_token) {
    line.duration("first_token", *summary.first_token);
    const Nanos rest = summary.duration - *summary.first_token;
    if (usage.completion_tokens > 1 && rest > 0) {
      const auto tokens = static_cast<double>(usage.completion_tokens - 1);
      line.number("tokens_per_second", tokens * 1e9 / static_cast<double>(rest));
    }
  }
  if (summary.cut_off)
    line.text("finish", "server_stopped");
  else if (summary.client_left)
    line.text("finish", "client_left");
  else if (!summary.finish_reason.empty())
    line.text("finish", summary.finish_reason);
}

// Why the request got no answer that it asked for, as its client was told, or what only the operator may
// know.
void add_refusal(LogLine& line, const ApiError& error) {
  line.text("error", error.code.empty() ? error.type : error.code);
  if (!error.param.empty()) line.text("field", utf8_prefix(error.param, 200));
  line.text("reason", utf8_prefix(error.operator_message.empty() ? error.message : error.operator_message,
                                  kShownBytesMax));
}

}  // namespace

LogLine access_line(const Call& call, Nanos duration) {
  LogLine line("access");
  line.text("request_id", call.exchange.request_id());
  if (call.tenant) line.text("tenant", call.tenant->id);
  line.text("method", utf8_prefix(call.exchange.request().method_text, kShownBytesMax))
      .text("path", utf8_prefix(call.exchange.path(), kShownBytesMax))
      .count("status", call.exchange.status());
  if (call.refusal) add_refusal(line, *call.refusal);
  if (call.generation) add_generation(line, *call.generation);
  line.duration("duration", duration);
  return line;
}

LogLine background_line(std::string_view request_id, std::string_view path, std::string_view tenant,
                        const GenerationSummary& summary) {
  LogLine line("background");
  line.text("request_id", request_id).text("tenant", tenant).text("path", path);
  add_generation(line, summary);
  line.duration("duration", summary.duration);
  return line;
}

}  // namespace loci
