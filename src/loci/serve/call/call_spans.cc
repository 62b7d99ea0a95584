// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/call/call_spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace loci {
namespace http = boost::beast::http;

namespace {

// As the semantic conventions call it; empty: nothing is generated there.
std::string_view operation_of(std::string_view path) {
  if (path == "/v1/completions") return "text_completion";
  if (path == "/v1/chat/completions" || path == "/v1/messages" || path == "/v1/responses") return "chat";
  return {};
}

void add_operation(TraceSpan& span, std::string_view path) {
  const std::string_view operation = operation_of(path);
  if (!operation.empty()) span.text("gen_ai.operation.name", operation).text("gen_ai.provider.name", "loci");
}

void add_generation(TraceSpan& span, const GenerationSummary& summary) {
  if (!summary.model_asked.empty()) span.text("gen_ai.request.model", summary.model_asked);
  if (!summary.model.empty()) span.text("gen_ai.response.model", summary.model);
  const ReplyUsage& usage = summary.usage;
  const ContextSources& sources = usage.explanation.sources;
  span.count("gen_ai.usage.input_tokens", usage.prompt_tokens)
      .count("gen_ai.usage.output_tokens", usage.completion_tokens)
      .count("loci.cached_tokens", usage.cached_tokens)
      .count("loci.tokens.device", sources.device)
      .count("loci.tokens.host", sources.host)
      .count("loci.tokens.disk", sources.disk)
      .count("loci.tokens.shared", sources.shared)
      .count("loci.tokens.computed", computed_tokens(sources));
  if (summary.prefill != PrefillEnd::kNone) span.text("loci.prefill", prefill_end_name(summary.prefill));
  if (!summary.finish_reasons.empty()) {
    span.attributes.emplace_back(
        "gen_ai.response.finish_reasons",
        std::vector<std::string>(summary.finish_reasons.begin(), summary.finish_reasons.end()));
  }
  if (summary.client_left) span.text("loci.finish", "client_left");
  // A stream's status is that of its beginning.
  if (summary.cut_off || summary.finish_reason == "failed") span.has_failed = true;
}

// `received`: the request's last byte, from which the summary counts.
void end_parts(Tracer& tracer, const TraceContext& parent, const GenerationSummary& summary, Nanos received) {
  const auto end_part = [&](const char* name, Nanos begin, Nanos end) {
    const TracedRequest part = tracer.begin_child(parent, received + begin);
    tracer.end(Tracer::span_of(part, SpanKind::kInternal, name, received + end));
  };
  const Nanos last = std::max(summary.duration, summary.prefill_wait);
  end_part("queue", 0, summary.admitted.value_or(last));
  if (summary.admitted) end_part("prompt", *summary.admitted, summary.first_token.value_or(last));
  if (summary.first_token) end_part("reply", *summary.first_token, summary.last_token.value_or(last));
}

}  // namespace

void end_spans(Tracer& tracer, const Call& call, const Route& route, Nanos end) {
  if (!call.trace || !call.trace->context.is_sampled) return;
  const Exchange& exchange = call.exchange;
  const std::string& method = exchange.request().method_text;
  TraceSpan span =
      Tracer::span_of(*call.trace, SpanKind::kServer, fmt::format("{} {}", method, route.pattern), end);
  span.text("http.request.method", method)
      .text("http.route", route.pattern)
      .text("url.scheme", tracer.scheme());
  const int status = exchange.status();
  if (status != 0) span.count("http.response.status_code", static_cast<std::uint64_t>(status));
  span.text("loci.request_id", exchange.request_id());
  if (call.tenant) span.text("loci.tenant", call.tenant->id);
  if (route.method == http::verb::post) add_operation(span, route.pattern);
  if (call.generation) add_generation(span, *call.generation);
  if (status >= 500) span.has_failed = true;
  if (call.refusal)
    span.text("error.type", call.refusal->code.empty() ? call.refusal->type : call.refusal->code);
  else if (span.has_failed)
    span.text("error.type", status >= 500 ? std::to_string(status) : "stream_failed");
  tracer.end(std::move(span));
  if (call.generation) end_parts(tracer, call.trace->context, *call.generation, exchange.received_at());
}

void end_background_spans(Tracer& tracer, const ReplyOrigin& origin, const GenerationSummary& summary,
                          bool was_refused) {
  if (!origin.trace || !origin.trace->is_sampled) return;
  const TracedRequest traced = tracer.begin_child(*origin.trace, origin.received_at);
  TraceSpan span =
      Tracer::span_of(traced, SpanKind::kInternal, "background", origin.received_at + summary.duration);
  span.text("loci.request_id", origin.request_id).text("loci.tenant", origin.tenant->id);
  add_operation(span, origin.path);
  add_generation(span, summary);
  if (was_refused) span.has_failed = true;
  tracer.end(std::move(span));
  end_parts(tracer, traced.context, summary, origin.received_at);
}

}  // namespace loci
