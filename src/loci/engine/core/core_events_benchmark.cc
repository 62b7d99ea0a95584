// SPDX-License-Identifier: Apache-2.0
// What single events cost where there is much of everything: 99 of 100 of a kind take at most the time that
// is printed for it. (Prompts of 128K tokens cost by their blocks, and stand for themselves.)
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/memory/chain_key.h"

namespace loci {
namespace {

// Of this thread: what else the machine does is left out.
std::int64_t processor_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * kNanosPerSecond + now.tv_nsec;
}

// Times by kind of event, in nanoseconds.
class EventTimes {
 public:
  void add(const std::string& kind, std::int64_t took) { times_[kind].push_back(took); }
  void report(benchmark::State& state) {
    for (auto& [kind, times] : times_) {
      const auto at = times.begin() + static_cast<std::ptrdiff_t>(times.size() * 99 / 100);
      std::nth_element(times.begin(), at, times.end());
      state.counters[kind + "_p99_us"] = static_cast<double>(*at) / 1e3;
    }
  }

 private:
  std::map<std::string, std::vector<std::int64_t>> times_;
};

std::vector<TokenId> tokens_of(std::uint32_t seed, std::size_t count) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < count; ++i)
    tokens.push_back(TokenId(static_cast<std::uint32_t>((i * 2654435761u) ^ (seed * 40503u)) % 49152));
  return tokens;
}

PassDone done(const Plan& plan) {
  PassDone event{plan.pass->id, {}};
  for (const SpanPlan& span : plan.spans) {
    SpanOutcome outcome;
    if (span.sample) outcome.sample = TokenId(static_cast<std::uint32_t>(span.request.value));
    event.spans.push_back(outcome);
  }
  return event;
}

// The entries of a disk with so many conversations of one block each, of as many tenants as are given.
std::vector<Recovered> conversations(const CoreConfig& config, std::uint32_t count, std::uint32_t tenants) {
  const ChainKeyHasher hasher(config.chain_secret, config.model_fingerprint);
  std::vector<Recovered> batches(1);
  for (std::uint32_t i = 0; i < count; ++i) {
    RecoveredEntry found{.entry = {}, .group = 0, .hole = false, .slot = SlotId(i)};
    found.entry.depth = 1;
    found.entry.parent = hasher.root("tenant" + std::to_string(i % tenants));
    found.entry.parent_kind = ParentKind::kRoot;
    const std::vector<TokenId> tokens = tokens_of(i, kBlockTokens);
    std::copy(tokens.begin(), tokens.end(), found.entry.tokens.begin());
    found.entry.key = hasher.child(found.entry.parent, tokens);
    if (batches.back().entries.size() == 512) batches.emplace_back();
    batches.back().entries.push_back(found);
  }
  batches.back().last = true;
  return batches;
}

// Steps a core, and takes the time of each step.
class TimedCore {
 public:
  TimedCore(const CoreConfig& config, EventTimes& times) : core_(Core::make(config).value()), times_(times) {}

  void step(const std::string& kind, const Event& event) {
    const std::int64_t begin = processor_time();
    Plan plan = core_.step(now += kNanosPerMilli, event);
    times_.add(kind, processor_time() - begin);
    if (plan.pass) in_flight = std::move(plan);
  }
  void end_pass(const std::string& kind) {
    const PassDone event = done(*std::exchange(in_flight, {}));
    step(kind, event);
  }
  CoreStats stats() const { return core_.stats(); }

  Nanos now = 0;
  std::optional<Plan> in_flight;

 private:
  Core core_;
  EventTimes& times_;
};

// 10,000 tenants wait, on an index of 100,000 conversations.
void events_of_many_tenants(benchmark::State& state) {
  constexpr std::uint32_t kTenants = 10'000, kConversations = 100'000;
  CoreConfig config;
  config.groups = {{.window = 0,
                    .block_count = 100'000,
                    .disk_blocks = kConversations + 50'000,
                    .block_bytes = 720 << 10}};
  config.layers = 30;
  config.context_tokens = 8192;
  config.max_queued = 2 * kTenants;
  const std::vector<Recovered> disk = conversations(config, kConversations, kTenants);
  for (auto _ : state) {
    EventTimes times;
    TimedCore core(config, times);
    for (const Recovered& batch : disk) core.step("recovered_512", batch);
    for (std::uint32_t i = 1; i <= kTenants; ++i) {
      core.step(
          "arrival",
          Arrival{
              RequestId(i), "tenant" + std::to_string(i), tokens_of(1'000'000 + i, 100), 16, 0, {}, kNever});
      if (i % 8 == 0) core.end_pass("pass");
    }
    for (std::uint32_t i = 0; i < 800; ++i) {
      core.end_pass("pass");
      core.step("tick", Tick{});
      const RequestId waiting(kTenants - i);
      if (i % 2 == 0) {
        core.step("cancel", Cancel{waiting});
      } else {
        core.step("pause", Pause{waiting, true});
        core.step("resume", Pause{waiting, false});
      }
    }
    if (core.stats().queued < kTenants / 8) state.SkipWithError("the queue has emptied");
    times.report(state);
  }
}
BENCHMARK(events_of_many_tenants)->Iterations(1)->Unit(benchmark::kSecond);

// Replies at the end of contexts of 128K tokens.
void events_of_long_contexts(benchmark::State& state) {
  constexpr std::size_t kContext = 128 << 10;
  const auto batch = static_cast<std::uint32_t>(state.range(0));
  CoreConfig config;
  config.groups = {{.window = 0, .block_count = 64 * 4200}};
  config.layers = 30;
  config.context_tokens = 1 << 20;
  config.max_batch_tokens = 8192;
  for (auto _ : state) {
    EventTimes times;
    TimedCore core(config, times);
    for (std::uint32_t i = 1; i <= batch; ++i)
      core.step("arrival_128k", Arrival{RequestId(i), "g", tokens_of(i, kContext), 1u << 20, 0, {}, kNever});
    while (core.in_flight->spans.size() < batch || core.in_flight->pass->spans[0].tokens.size() != 1)
      core.end_pass("prompt_chunk");
    for (int i = 0; i < 2'000; ++i) core.end_pass("decodes");
    times.report(state);
  }
}
BENCHMARK(events_of_long_contexts)->Iterations(1)->Unit(benchmark::kSecond)->Arg(1)->Arg(8)->Arg(64);

// A prompt whose 5,000 blocks are all on the disk: each load ends alone, while all the others are in flight.
void events_of_many_moves(benchmark::State& state) {
  constexpr std::uint32_t kMoves = 5'000;
  CoreConfig config;
  config.groups = {{.window = 0, .block_count = kMoves + 64, .disk_blocks = kMoves, .block_bytes = 1 << 10}};
  config.layers = 30;
  config.context_tokens = 1 << 20;
  config.max_batch_tokens = 8192;
  config.costs.token = kNanosPerSecond;  // loading is worth it
  const ChainKeyHasher hasher(config.chain_secret, config.model_fingerprint);
  const std::vector<TokenId> prompt = tokens_of(1, kMoves * kBlockTokens + 1);
  Recovered disk;
  disk.last = true;
  ChainKey parent = hasher.root("g");
  for (std::uint32_t i = 0; i < kMoves; ++i) {
    RecoveredEntry found{.entry = {}, .group = 0, .hole = false, .slot = SlotId(i)};
    found.entry.depth = i + 1;
    found.entry.parent = parent;
    found.entry.parent_kind = i == 0 ? ParentKind::kRoot : ParentKind::kBlock;
    const auto begin = prompt.begin() + i * kBlockTokens;
    std::copy(begin, begin + kBlockTokens, found.entry.tokens.begin());
    found.entry.key = parent = hasher.child(parent, std::span<const TokenId>(found.entry.tokens));
    disk.entries.push_back(found);
  }
  for (auto _ : state) {
    Core core = Core::make(config).value();
    core.step(0, disk);
    const Plan plan = core.step(1, Arrival{RequestId(1), "g", prompt, 1, 0, {}, kNever});
    if (plan.moves.size() != kMoves) state.SkipWithError("not all is loaded");
    EventTimes times;
    for (const Move& move : plan.moves) {
      const std::int64_t begin = processor_time();
      core.step(2, MovesEnded{{{move.id, MoveResult::kDone, 0}}});
      times.add("move_ended", processor_time() - begin);
    }
    times.report(state);
  }
}
BENCHMARK(events_of_many_moves)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace loci
