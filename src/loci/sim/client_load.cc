// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/client_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "loci/base/check.h"
#include "loci/base/random.h"
#include "loci/sim/packed_file.h"
#include "loci/sim/trace_readers.h"

namespace loci {
namespace {

// No two requests have tokens in common: what is measured is not the cache.
std::vector<TokenId> prompt_of(std::uint64_t request, std::uint32_t count) {
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < count; ++i) {
    tokens.push_back(TokenId(static_cast<std::uint32_t>(random_word(request, i) % 50'000)));
  }
  return tokens;
}

Arrival arrival_of(const LoadRequest& request, std::uint64_t number, bool one_tenant) {
  Arrival arrival;
  arrival.request = RequestId(number);
  arrival.tenant = one_tenant ? "all" : fmt::format("client-{}", request.client);
  arrival.prompt = prompt_of(number, request.prompt_tokens);
  arrival.max_new_tokens = request.output_tokens;
  return arrival;
}

PassDone done(const Plan& plan) {
  PassDone event{plan.pass->id, {}};
  for (const SpanPlan& span : plan.spans) {
    SpanOutcome outcome;
    if (span.sample) outcome.sample = TokenId(static_cast<std::uint32_t>(span.request.value % 50'000));
    event.spans.push_back(outcome);
  }
  return event;
}

Nanos duration_of(const Pass& pass, const ClientLoadOptions& options) {
  Nanos tokens = 0;
  for (const Span& span : pass.spans) tokens += static_cast<Nanos>(span.tokens.size());
  return options.pass_fixed + options.pass_per_token * tokens;
}

}  // namespace

ClientLoadOptions default_load_options() {
  ClientLoadOptions options;
  options.core.groups = {{.window = 0, .block_count = 4000}};
  options.core.layers = 1;
  options.core.context_tokens = 4096;
  options.core.max_batch_tokens = 512;
  options.core.max_running = 64;
  options.core.max_queued = 256;
  return options;
}

LoadReport run_load(const std::vector<LoadRequest>& requests, const ClientLoadOptions& options) {
  Core core = Core::make(options.core).value();
  LoadReport report{.first_token = std::vector<Nanos>(requests.size(), kNever)};
  Nanos now = 0, ends_at = kNever;
  std::optional<PassDone> in_flight;
  std::size_t next = 0;
  const auto step = [&](const Event& event) {
    Plan plan = core.step(now, event);
    for (const Output& output : plan.outputs) {
      const auto* token = std::get_if<TokenSampled>(&output);
      if (token == nullptr) continue;
      Nanos& first = report.first_token[token->request.value];
      if (first == kNever) first = now - requests[token->request.value].at;
    }
    if (!plan.pass) return;
    in_flight = done(plan);
    ends_at = now + duration_of(*plan.pass, options);
  };
  while (next < requests.size() || in_flight) {
    if (in_flight && (next == requests.size() || ends_at <= requests[next].at)) {
      now = ends_at;
      const PassDone event = *std::exchange(in_flight, std::nullopt);
      step(event);
    } else {
      now = requests[next].at;
      step(arrival_of(requests[next], next, options.one_tenant));
      ++next;
    }
  }
  report.suspensions = core.stats().suspensions_total;
  report.duration = now;
  return report;
}

std::optional<std::vector<LoadRequest>> arena_clients() {
  const std::optional<std::string> path = sim::shared_data("arena-clients/requests.csv.gz");
  if (!path) return std::nullopt;
  const sim::Trace trace = sim::parse_arena(sim::read_text(*path).value(), *path).value();
  std::vector<LoadRequest> requests;
  for (const sim::Conversation& conversation : trace.conversations) {
    const sim::Turn& turn = conversation.turns.front();
    requests.push_back({.at = turn.at,
                        .client = conversation.client.value(),
                        .prompt_tokens = static_cast<std::uint32_t>(sim::tokens_of(turn.pieces)),
                        .output_tokens = turn.reply_tokens});
  }
  return requests;
}

std::vector<LoadRequest> drawn_clients(std::uint64_t seed) {
  constexpr std::uint32_t kClients = 27;
  constexpr std::uint32_t kRequests = 955;
  constexpr std::uint64_t kMillis = 400'000;
  Random random(seed);
  std::vector<LoadRequest> requests;
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    LoadRequest request;
    // 20 %, then each client four fifths of the one before.
    while (request.client + 1 < kClients && random.below(5) != 0) ++request.client;
    request.at = static_cast<Nanos>(random.below(kMillis)) * kNanosPerMilli;
    // Many short ones, few long ones.
    request.prompt_tokens =
        5 + static_cast<std::uint32_t>(random.below(20 + random.below(1 + random.below(900))));
    request.output_tokens = 10 + static_cast<std::uint32_t>(random.below(100 + random.below(700)));
    requests.push_back(request);
  }
  std::stable_sort(requests.begin(), requests.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
  return requests;
}

std::vector<LoadRequest> with_heavy_client(const std::vector<LoadRequest>& requests, std::uint32_t times) {
  std::map<std::uint32_t, std::uint32_t> counts;
  for (const LoadRequest& request : requests) ++counts[request.client];
  const auto busiest = std::max_element(counts.begin(), counts.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<LoadRequest> all = requests;
  for (const LoadRequest& request : requests) {
    if (request.client != busiest->first) continue;
    for (std::uint32_t i = 0; i < times; ++i) {
      LoadRequest more = request;
      more.client = kHeavyClient;
      all.push_back(more);
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return all;
}

Nanos percentile_of_others(const std::vector<LoadRequest>& requests, const LoadReport& report,
                           std::uint32_t percent) {
  std::vector<Nanos> times;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].client != kHeavyClient) times.push_back(report.first_token[i]);
  }
  LOCI_CHECK(!times.empty(), "others are there");
  std::sort(times.begin(), times.end());
  return times[(times.size() * percent + 99) / 100 - 1];
}

}  // namespace loci
