// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/early_reads.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "loci/serve/generation/generation_services.h"

namespace loci {
namespace asio = boost::asio;

namespace {

// A read costs a row of a pass, and whoever submits it the keys of all tokens before: so it brings so many
// tokens at least, and an eighth of those that are there.
constexpr std::uint32_t kEarlyTokens = 256;

GenerationListener note_in(std::shared_ptr<EarlyReads> reads, bool is_first) {
  return [reads = std::move(reads), is_first](const GenerationEvent& event) {
    if (const auto* started = std::get_if<GenerationStarted>(&event)) {
      const ContextSources& from = started->sources;
      const std::uint32_t computed = std::accumulate(from.computed.begin(), from.computed.end(), 0u);
      reads->tokens += from.shared;
      reads->computed += computed;
      if (is_first) reads->had = from.device + from.host + from.disk;
      if (computed > kBlockTokens || (!is_first && from.host + from.disk > 0)) reads->is_over = true;
      reads->is_queued = false;
    } else if (const auto* ended = std::get_if<GenerationEnded>(&event)) {
      const StatusCode code = ended->status.code();
      if (code != StatusCode::kOk && code != StatusCode::kResourceExhausted) reads->is_over = true;
      reads->is_queued = reads->is_open = false;
    }
  };
}

}  // namespace

ContextSources with_reads(ContextSources sources, const EarlyReads& reads) {
  const std::uint32_t here = sources.device + sources.host + sources.disk;
  const std::uint32_t brought =
      std::min(here - std::min<std::uint32_t>(here, reads.had), reads.tokens.load());
  std::uint32_t left = brought;
  for (std::uint32_t* from : {&sources.device, &sources.host, &sources.disk}) {
    const std::uint32_t taken = std::min(left, *from);
    *from -= taken;
    left -= taken;
  }
  sources.shared += brought;
  sources.hidden = std::min(sources.hidden, sources.disk);
  return sources;
}

EarlyReader::EarlyReader(Engine& engine, WorkerPool& workers, const PrefillWork& work,
                         std::span<const TokenId> prompt)
    : engine_(engine),
      workers_(workers),
      tenant_(work.tenant),
      salt_(work.salt),
      weight_(work.weight),
      queued_max_(work.queued_max),
      prompt_(prompt) {}

asio::awaitable<void> EarlyReader::read(std::uint32_t tokens) {
  const std::uint32_t whole = tokens / kBlockTokens * kBlockTokens;
  const std::uint32_t worth = asked_ + std::max(kEarlyTokens, asked_ / 8);
  if (reads_->is_over) {
    cancel();  // it computes what the other member computes
    co_return;
  }
  if (whole < worth || whole >= prompt_.size() || reads_->is_open || !has_room()) co_return;
  const bool is_first = asked_ == 0;
  asked_ = whole;
  reads_->is_queued = reads_->is_open = true;
  const auto submit = [this, is_first] {
    const std::span<const TokenId> first = prompt_.first(asked_ + 1);
    GenerationRequest request{.tenant = tenant_,
                              .prompt = {first.begin(), first.end()},
                              .sampling = {},
                              .max_new_tokens = 1,
                              .stop_tokens = {},
                              .time_limit = kPrefillLimitMax,
                              .weight = weight_,
                              .queued_max = queued_max_,
                              .salt = salt_};
    last_ = engine_.submit(std::move(request), note_in(reads_, is_first));
    return true;
  };
  if (whole <= kTokensSubmittedHere) {
    submit();
  } else {
    co_await workers_.run(tenant_, submit);
  }
}

// (Somebody may come in between. A read has the tenant's bounds, as any request.)
bool EarlyReader::has_room() const {
  const CoreStats stats = engine_.stats();
  return stats.queued == 0 && stats.running < engine_.config().max_running;
}

void EarlyReader::cancel() {
  if (reads_->is_open) engine_.cancel(last_);
}

void EarlyReader::cancel_queued() {
  if (reads_->is_queued) engine_.cancel(last_);
}

}  // namespace loci
