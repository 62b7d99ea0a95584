// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/compute_elsewhere.h"

#include <algorithm>
#include <string>
#include <utility>

#include "loci/serve/generation/early_reads.h"
#include "loci/serve/wire/sse.h"

namespace loci {
namespace asio = boost::asio;

namespace {

// `before`: the one that was handed over before; null: none was.
bool is_handed(const PreparedGeneration& prepared, std::size_t prompt, const std::vector<TokenId>* before) {
  // (What is left of a history that was cut has state of its own.)
  if (!prepared.dropped[prompt].empty()) return false;
  if (prepared.prompts.size() == 1) return true;  // the front has seen that it pays
  const std::vector<TokenId>& tokens = prepared.prompts[prompt];
  const auto end = before == nullptr ? tokens.begin() : std::ranges::mismatch(tokens, *before).in1;
  return static_cast<std::size_t>(tokens.end() - end) >= kHandedTokensMin;
}

// Says to whoever reads the stream that it lives, once nothing was said for a while.
class Comments {
 public:
  Comments(GenerationServices& services, ReplySink& sink, const PreparedGeneration& prepared, bool& is_begun)
      : services_(services),
        sink_(sink),
        // (A front that did not name the reply reads no marks.)
        is_wanted_(prepared.fields.stream && sink.has_reader() && prepared.resumed),
        is_begun_(is_begun),
        said_at_(services.clock.now()) {}

  asio::awaitable<void> wait() {
    const Nanos now = services_.clock.now();
    if (!is_wanted_ || now - said_at_ < services_.quiet_limit) co_return;
    said_at_ = now;
    if (!is_begun_) {
      is_begun_ = true;
      sink_.set_header(std::string(kPrefillHeader), std::string(kPrefillLater));
      if (!co_await sink_.begin_stream()) co_return;
    }
    co_await sink_.stream(kSseComment);
  }

 private:
  GenerationServices& services_;
  ReplySink& sink_;
  const bool is_wanted_;
  bool& is_begun_;
  Nanos said_at_;
};

// Has the member compute that prompt.
asio::awaitable<void> compute_one(GenerationServices& services, ReplySink& sink,
                                  const PreparedGeneration& prepared, std::size_t prompt, Nanos limit,
                                  Comments& comments, ComputedElsewhere& out) {
  const Tenant& tenant = *sink.origin().tenant;
  const std::vector<TokenId>& tokens = prepared.prompts[prompt];
  Engine& engine = *services.served.load()->engine;
  PrefillOrder order{.io = sink.origin().io,
                     .place = *prepared.prefill,
                     .work = {.tenant = tenant.id,
                              .salt = prepared.fields.cache_salt,
                              .weight = tenant.limits.weight,
                              .queued_max = tenant.limits.queued_max(engine.config().max_queued),
                              .tokens = tokens,
                              .text = prepared.text},
                     .limit = limit,
                     .watch = [&sink](std::function<void()> on_gone) { sink.watch(std::move(on_gone)); },
                     .stops = [&services] { return services.draining.load(); },
                     .waits = [&comments] { return comments.wait(); },
                     .ready = {}};
  EarlyReader reader(engine, services.workers, order.work, tokens);
  // Where requests find no state but their own, nothing that is read stays.
  if (engine.config().reuse) order.ready = [&reader](std::uint32_t ready) { return reader.read(ready); };
  const PrefillOutcome outcome = co_await services.ask_for_prefill(std::move(order));
  const bool was_given_up = outcome.end == PrefillEnd::kNone || sink.gone();
  if (was_given_up || reader.reads()->now().is_over()) {
    reader.cancel();
  } else {
    reader.cancel_queued();
  }
  if (outcome.end != PrefillEnd::kDone && !was_given_up) {
    services.log->warn("{}: the member at {}:{} did not compute the prompt: {}", sink.origin().request_id,
                       prepared.prefill->host, prepared.prefill->port, outcome.why);
  }
  out.end = outcome.end;
  // Of a member that broke off nobody knows what it had before.
  const bool is_done = outcome.end == PrefillEnd::kDone;
  out.prompts[prompt] = {.computed = is_done ? outcome.computed : reader.reads()->now().tokens(),
                         .early = reader.reads()};
}

}  // namespace

asio::awaitable<std::optional<ComputedElsewhere>> compute_elsewhere(GenerationServices& services,
                                                                    ReplySink& sink,
                                                                    const PreparedGeneration& prepared) {
  // (A front names nobody for prompts whose tokens are scored, unless it is of another version.)
  if (!prepared.prefill || !services.ask_for_prefill || prepared.scores_prompt) co_return std::nullopt;
  const Nanos begun_at = services.clock.now();
  const Nanos limit = std::min(services.time_limit.value_or(kPrefillLimitMax), kPrefillLimitMax);
  ComputedElsewhere out{.prompts = std::vector<ComputedElsewhere::Prompt>(prepared.prompts.size()),
                        .handed = std::make_unique<Counted>(services.handed)};
  Comments comments(services, sink, prepared, out.is_streaming);
  const std::vector<TokenId>* before = nullptr;
  for (std::size_t prompt = 0; prompt < prepared.prompts.size() && out.waited < limit; ++prompt) {
    if (!is_handed(prepared, prompt, before)) continue;
    const bool is_first = before == nullptr;
    before = &prepared.prompts[prompt];
    co_await compute_one(services, sink, prepared, prompt, limit - out.waited, comments, out);
    out.waited = services.clock.now() - begun_at;
    // The time is that of all: whoever had too little of it left is not to blame.
    if (out.end == PrefillEnd::kLate && !is_first && out.waited >= limit) out.end = PrefillEnd::kDone;
    if (out.end != PrefillEnd::kDone || sink.gone()) break;
  }
  if (before == nullptr) co_return std::nullopt;
  if (out.end != PrefillEnd::kNone && !sink.gone()) {
    const std::string mark =
        mark_event({.kind = ReplyMark::Kind::kPrefill, .number = static_cast<std::uint64_t>(out.end)});
    if (out.is_streaming)
      co_await sink.stream(mark);
    else
      sink.set_header(std::string(kPrefillHeader), std::string(prefill_end_name(out.end)));
  }
  co_return std::optional<ComputedElsewhere>(std::move(out));
}

}  // namespace loci
