// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/early_reads.h"

#include <optional>
#include <utility>
#include <variant>

#include "loci/serve/generation/generation_services.h"

namespace loci {
namespace asio = boost::asio;

namespace {

GenerationListener note_in(std::shared_ptr<EarlyReads> reads) {
  return [reads = std::move(reads)](const GenerationEvent& event) {
    if (const auto* started = std::get_if<GenerationStarted>(&event)) {
      reads->change([&](EarlyReadPace& pace) { pace.started(started->sources); });
    } else if (const auto* restored = std::get_if<GenerationRestored>(&event)) {
      reads->change([&](EarlyReadPace& pace) { pace.restored(restored->sources); });
    } else if (const auto* ended = std::get_if<GenerationEnded>(&event)) {
      reads->change([&](EarlyReadPace& pace) { pace.ended(ended->status.code()); });
    }
  };
}

}  // namespace

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
  const EarlyReadPace pace = reads_->now();
  if (pace.is_over()) cancel();  // it computes what the other member computes
  const std::optional<std::uint32_t> next = pace.next(tokens, static_cast<std::uint32_t>(prompt_.size()));
  if (!next || !has_room()) co_return;
  reads_->change([&](EarlyReadPace& one) { one.begin(*next); });
  const auto submit = [this, read = *next] {
    const std::span<const TokenId> first = prompt_.first(read + 1);
    GenerationRequest request{.tenant = tenant_,
                              .prompt = {first.begin(), first.end()},
                              .sampling = {},
                              .max_new_tokens = 1,
                              .stop_tokens = {},
                              .time_limit = kPrefillLimitMax,
                              .weight = weight_,
                              .queued_max = queued_max_,
                              .salt = salt_};
    last_ = engine_.submit(std::move(request), note_in(reads_));
    return true;
  };
  if (*next <= kTokensSubmittedHere) {
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
  if (reads_->now().is_open()) engine_.cancel(last_);
}

void EarlyReader::cancel_queued() {
  if (reads_->now().is_queued()) engine_.cancel(last_);
}

}  // namespace loci
