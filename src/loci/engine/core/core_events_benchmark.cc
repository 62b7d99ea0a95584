// SPDX-License-Identifier: Apache-2.0
// What single events cost where there is much of everything: half of a kind take at most its `p50` and 99 of
// 100 its `p99`. (Where others use the machine the second says more of them than of the core.) A step that
// admits requests, or ends some that run, costs by the blocks that it touches; so for those the mean time for
// a block is printed too, and the most blocks of a step. (Prompts of 128K tokens cost by their blocks, and
// stand for themselves.)
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_events_testing.h"
#include "loci/policy/admission_order.h"

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
  // The step has touched so many blocks.
  void add(const std::string& kind, std::int64_t took, std::size_t blocks) {
    add(kind, took);
    Blocks& all = blocks_[kind];
    all.took += took;
    all.count += blocks;
    all.most = std::max(all.most, blocks);
  }
  void report(benchmark::State& state) {
    for (auto& [kind, times] : times_) {
      std::ranges::sort(times);
      const auto us = [&](std::size_t place) { return static_cast<double>(times[place]) / 1e3; };
      state.counters[kind + "_p50_us"] = us(times.size() / 2);
      state.counters[kind + "_p99_us"] = us(times.size() * 99 / 100);
      state.counters[kind + "_max_us"] = us(times.size() - 1);
    }
    for (const auto& [kind, all] : blocks_) {
      state.counters[kind + "_us_a_block"] =
          static_cast<double>(all.took) / 1e3 / static_cast<double>(std::max<std::size_t>(all.count, 1));
      state.counters[kind + "_blocks_max"] = static_cast<double>(all.most);
    }
  }

 private:
  struct Blocks {
    std::int64_t took = 0;
    std::size_t count = 0, most = 0;
  };
  std::map<std::string, std::vector<std::int64_t>> times_;
  std::map<std::string, Blocks> blocks_;
};

// What steps have to do with the blocks of those that run.
class BlocksTouched {
 public:
  struct Step {
    bool admits = false, ends = false;
    std::size_t blocks = 0;  // let go of, taken, or begun to load
  };
  Step of(const Plan& plan) {
    Step step{.blocks = plan.moves.size()};
    const auto add = [&](std::size_t tokens) { step.blocks += (tokens + kBlockTokens - 1) / kBlockTokens; };
    for (const Output& output : plan.outputs) {
      if (const auto* end = std::get_if<Finished>(&output);
          end != nullptr && running_.erase(end->request) > 0) {
        step.ends = true;
        add(std::size_t{end->usage.prompt_tokens} + end->usage.completion_tokens);
      }
      const auto* start = std::get_if<Started>(&output);
      if (start == nullptr) continue;
      step.admits = true;
      running_.insert(start->request);
      const auto& computed = start->sources.computed;
      add(std::accumulate(computed.begin(), computed.end(), std::size_t{start->sources.cached()}));
    }
    return step;
  }

 private:
  std::set<RequestId> running_;
};

// Steps a core, and takes the time of each step. Arrivals are prepared and deletions bring their keys, as
// those of the engine, unless the core is to make them, as a replay does.
class TimedCore {
 public:
  TimedCore(const CoreConfig& config, EventTimes& times)
      : config_(config),
        hasher_(config.chain_secret, config.model_fingerprint),
        core_(Core::make(config).value()),
        times_(&times) {}

  void step(const std::string& kind, Event event) {
    if (auto* arrival = std::get_if<Arrival>(&event); arrival != nullptr && brings_keys)
      prepare_arrival(config_, hasher_, *core_.public_chains(), *arrival);
    if (auto* deleted = std::get_if<Forget>(&event); deleted != nullptr && brings_keys)
      deleted->keys = forget_keys(hasher_, *core_.public_chains(), *deleted);
    if (auto* found = std::get_if<Recovered>(&event); found != nullptr && brings_keys)
      check_keys(hasher_, found->entries);
    const std::int64_t begin = processor_time();
    Plan plan = core_.step(now += kNanosPerMilli, std::move(event));
    const std::int64_t took = processor_time() - begin;
    const BlocksTouched::Step touched = touched_.of(plan);
    if (touched.admits || touched.ends)
      times_->add(kind + (touched.admits ? "_that_admits" : "_that_ends"), took, touched.blocks);
    else
      times_->add(kind, took);
    moves.insert(moves.end(), plan.moves.begin(), plan.moves.end());
    // It asks for another step before the next event, or for all that follow at once.
    const bool goes_on = plan.wake_at <= now + kNanosPerMilli, at_once = plan.wake_at <= now + 1;
    if (plan.pass) in_flight = std::move(plan);
    if (at_once || (goes_on && kind != "goes_on")) step("goes_on", Tick{});
  }
  void end_pass(const std::string& kind) { step(kind, pass_done(*std::exchange(in_flight, {}))); }
  CoreStats stats() const { return core_.stats(); }
  void time_into(EventTimes& times) { times_ = &times; }

  bool brings_keys = true;
  Nanos now = 0;
  std::optional<Plan> in_flight;
  std::vector<Move> moves;  // that have begun, and been forgotten by nobody

 private:
  const CoreConfig config_;
  const ChainKeyHasher hasher_;
  Core core_;
  EventTimes* times_;
  BlocksTouched touched_;
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
  LeftOnDisk disk(config);
  for (std::uint32_t i = 0; i < kConversations; ++i)
    disk.add("tenant" + std::to_string(i % kTenants), tokens_of(i, kBlockTokens), age_of(i));
  for (auto _ : state) {
    EventTimes times;
    TimedCore core(config, times);
    for (const Recovered& event : disk.events(8)) core.step("recovered", event);
    std::uint32_t arrivals = 0;
    const auto arrive = [&](const std::string& kind, const std::string& tenant) {
      ++arrivals;
      core.step(
          kind,
          Arrival{RequestId(arrivals), tenant, tokens_of(1'000'000 + arrivals, 100), 16, 0, {}, kNever});
    };
    for (std::uint32_t i = 1; i <= kTenants; ++i) {
      arrive("arrival", "tenant" + std::to_string(i));
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
    for (std::uint32_t i = 0; i < 800; ++i)
      core.step("forget", Forget{"tenant" + std::to_string(i), {}, tokens_of(i, kBlockTokens)});
    // The queue is full, and who has more in it than others sends more; newcomers take its places.
    for (std::uint64_t left = config.max_queued - core.stats().queued; left > 0; --left)
      arrive("arrival", "tenant" + std::to_string(left));
    for (std::uint32_t i = 0; i < 800; ++i) {
      arrive("arrival_refused", "tenant5000");
      arrive("arrival_displacing", "newcomer" + std::to_string(i));
    }
    if (core.stats().queued != config.max_queued) state.SkipWithError("the queue is not full");
    times.report(state);
  }
}
BENCHMARK(events_of_many_tenants)->Iterations(1)->Unit(benchmark::kSecond);

// Replies at the end of contexts of 128K tokens.
void events_of_long_contexts(benchmark::State& state) {
  constexpr std::size_t kContext = 128 << 10;
  const auto batch = static_cast<std::uint32_t>(state.range(0));
  CoreConfig config;
  config.groups = {{.window = 0, .block_count = 64 * 4700}};  // a tenth is kept free for decodes
  config.layers = 30;
  config.context_tokens = 1 << 20;
  config.max_batch_tokens = 8192;
  config.max_running = batch;
  for (auto _ : state) {
    EventTimes times;
    TimedCore core(config, times);
    for (std::uint32_t i = 1; i <= batch; ++i)
      core.step("arrival_128k", Arrival{RequestId(i), "g", tokens_of(i, kContext), 1u << 20, 0, {}, kNever});
    for (std::uint32_t chunks = 0; chunks < 32 * batch && core.in_flight->spans.size() < batch; ++chunks)
      core.end_pass("prompt_chunk");
    if (core.in_flight->spans.size() < batch) return state.SkipWithError("not all prompts fit");
    for (int i = 0; i < 2'000; ++i) core.end_pass("decodes");
    times.report(state);
  }
}
BENCHMARK(events_of_long_contexts)->Iterations(1)->Unit(benchmark::kSecond)->Arg(1)->Arg(8)->Arg(64);

// So many requests of 4K tokens wait, of ten tenants: conversations that the disk has, of 5,000. The window
// has the first 32 of them, or as many as the tiers hold.
void events_of_a_queue(benchmark::State& state) {
  constexpr std::uint32_t kConversations = 5'000, kTokens = 4096, kRounds = 2'000;
  const auto waiting = static_cast<std::uint32_t>(state.range(0));
  CoreConfig config;
  config.groups = {{.window = 0,
                    .block_count = 20'000,
                    .host_blocks = 100'000,
                    .disk_blocks = kConversations * (kTokens / kBlockTokens) + 100'000,
                    .block_bytes = 720 << 10}};
  config.layers = 30;
  config.context_tokens = 8192;
  config.max_running = 16;
  config.max_queued = 2 * kConversations;
  config.lookahead_requests = static_cast<std::uint32_t>(state.range(1));
  config.admission = kAdmissionOrders[static_cast<std::size_t>(state.range(2))];
  const auto tenant_of = [](std::uint32_t i) { return "tenant" + std::to_string(i % 10); };
  LeftOnDisk disk(config);
  for (std::uint32_t i = 0; i < kConversations; ++i) disk.add(tenant_of(i), tokens_of(i, kTokens), age_of(i));
  for (auto _ : state) {
    EventTimes times, before;
    TimedCore filled(config, times);
    for (const Recovered& event : disk.events(8)) filled.step("recovered", event);
    for (int i = 0; i < 3'000; ++i) filled.step("lets_go", Tick{});
    filled.time_into(before);
    std::uint32_t arrivals = 0;
    // The next turn of the next conversation.
    const auto arrive = [&](TimedCore& core) {
      std::vector<TokenId> prompt = tokens_of(arrivals % kConversations, kTokens);
      for (const TokenId token : tokens_of(1'000'000 + arrivals, 40)) prompt.push_back(token);
      const std::string tenant = tenant_of(arrivals % kConversations);
      ++arrivals;
      core.step("arrival", Arrival{RequestId(arrivals), tenant, std::move(prompt), 16, 0, {}, kNever});
    };
    while (filled.stats().queued < waiting) arrive(filled);
    filled.time_into(times);
    std::uint32_t cancels = 0;
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      filled.end_pass("pass");
      for (const Move& move : std::exchange(filled.moves, {}))
        filled.step("move_ended", MovesEnded{{{move.id, MoveResult::kDone, 0}}});
      if (filled.stats().queued < waiting + 4) arrive(filled);
      // Somebody near the end gives up.
      if (filled.stats().queued > waiting)
        filled.step("cancel", Cancel{RequestId(arrivals - cancels++ % 32)});
    }
    if (filled.stats().queued + 16 < waiting) state.SkipWithError("the queue has emptied");
    times.report(state);
  }
}
BENCHMARK(events_of_a_queue)
    ->Iterations(1)
    ->Unit(benchmark::kSecond)
    ->ArgNames({"waiting", "lookahead", "admission"})
    ->ArgsProduct({{50, 5'000}, {32, kLookaheadUnlimited}, {0}})
    ->ArgsProduct({{50, 5'000}, {32}, {1}});

// What arrives while somebody else's reply is computed: prompts of a context of 128K tokens, the same behind
// a public prefix, and histories of 256K tokens that were cut, by half of the context each time and by an
// eighth. Each waits, and gives up when a few others have come.
void events_of_long_arrivals(benchmark::State& state) {
  constexpr std::uint32_t kContext = 128 << 10, kRounds = 200, kWaiting = 16, kPrefix = 2000;
  CoreConfig config;
  config.groups = {{.window = 0, .block_count = 2 * kContext / kBlockTokens}};
  config.layers = 30;
  config.context_tokens = kContext;
  config.max_batch_tokens = 8192;
  const auto cut = [](Arrival& arrival, std::uint32_t each) {
    for (std::uint32_t at = kBlockTokens; arrival.prompt.size() - (at - kBlockTokens) >= kContext; at += each)
      arrival.dropped.push_back({at, at + each});
  };
  for (auto _ : state) {
    EventTimes times;
    TimedCore core(config, times);
    core.brings_keys = state.range(0) != 0;
    std::uint64_t id = 0;
    Arrival prefix{RequestId(++id), "operator", tokens_of(1, kPrefix), 1, 0, {}, kNever};
    prefix.scope = SharingScope::kPublic;
    core.step("prefix", std::move(prefix));
    while (core.in_flight) core.end_pass("prefix");
    core.step("first", Arrival{RequestId(++id), "g", tokens_of(2, 40), 1u << 20, 0, {}, kNever});
    std::uint64_t gone = id;
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      for (const char* kind :
           {"arrival_128k", "arrival_public_128k", "arrival_cut_by_half", "arrival_cut_by_8th"}) {
        const std::string_view name(kind);
        const bool is_cut = name.find("cut") != name.npos, is_public = name.find("public") != name.npos;
        std::vector<TokenId> prompt = is_public ? tokens_of(1, kPrefix) : std::vector<TokenId>();
        const std::size_t tokens = (is_cut ? 2 * kContext : kContext) - 100;
        for (const TokenId token : tokens_of(10 + i, tokens - prompt.size())) prompt.push_back(token);
        Arrival arrival{RequestId(++id), "g", std::move(prompt), 16, 0, {}, kNever};
        if (is_cut) cut(arrival, name.ends_with("half") ? kContext / 2 : kContext / 8);
        core.step(kind, std::move(arrival));
        if (id - gone > kWaiting) core.step("cancel", Cancel{RequestId(++gone)});
      }
    }
    if (core.stats().queued != kWaiting) state.SkipWithError("not all of them wait");
    times.report(state);
  }
}
BENCHMARK(events_of_long_arrivals)->Iterations(1)->Unit(benchmark::kSecond)->ArgName("keys")->Arg(1)->Arg(0);

// Conversations of so many tokens come back, one after the other, with a model most of whose layers see 512
// tokens: the disk has all of their state, so each block's end is a place to go on from. `slow`: so slow a
// disk that everything is computed, and no load begins.
void events_behind_windows(benchmark::State& state) {
  const auto tokens = static_cast<std::uint32_t>(state.range(0));
  constexpr std::uint32_t kConversations = 20;
  CoreConfig config;
  const std::uint32_t blocks = 2 * tokens / kBlockTokens, on_disk = kConversations * tokens / kBlockTokens;
  config.groups = {{.window = 0, .block_count = blocks, .disk_blocks = on_disk, .block_bytes = 128 << 10},
                   {.window = 512, .block_count = 400, .disk_blocks = on_disk, .block_bytes = 704 << 10}};
  config.layers = 26;
  config.context_tokens = tokens + 4096;
  config.max_batch_tokens = 2048;
  config.costs.disk_read = {kNanosPerMilli, state.range(1) != 0 ? 1'000u : 50'000'000u};
  LeftOnDisk disk(config);
  for (std::uint32_t i = 0; i < kConversations; ++i) disk.add("g", tokens_of(i, tokens));
  for (auto _ : state) {
    EventTimes times;
    TimedCore core(config, times);
    for (const Recovered& event : disk.events(8)) core.step("recovered", event);
    for (std::uint32_t i = 0; i < kConversations; ++i) {
      std::vector<TokenId> prompt = tokens_of(i, tokens);
      for (const TokenId token : tokens_of(1000 + i, 40)) prompt.push_back(token);
      core.step("arrival", Arrival{RequestId(i + 1), "g", std::move(prompt), 1, 0, {}, kNever});
      core.step("cancel", Cancel{RequestId(i + 1)});
      for (const Move& move : std::exchange(core.moves, {}))
        core.step("move_ended", MovesEnded{{{move.id, MoveResult::kDone, 0}}});
      while (core.in_flight) core.end_pass("pass");
    }
    times.report(state);
  }
}
BENCHMARK(events_behind_windows)
    ->Iterations(1)
    ->Unit(benchmark::kSecond)
    ->ArgNames({"tokens", "slow"})
    ->ArgsProduct({{32 << 10, 128 << 10}, {0, 1}});

// Conversations of 128K tokens are deleted: all of each is on the disk, and nobody knows but its first turn;
// or all of it is known. And long ones are deleted of which nothing is there.
void events_of_deletions(benchmark::State& state) {
  constexpr std::uint32_t kConversations = 60, kTokens = 128 << 10;
  CoreConfig config;
  config.groups = {{.window = 0,
                    .block_count = 64,
                    .disk_blocks = kConversations * kTokens / kBlockTokens,
                    .block_bytes = 1}};
  config.layers = 30;
  config.context_tokens = 64 * kBlockTokens;
  LeftOnDisk disk(config);
  for (std::uint32_t i = 0; i < kConversations; ++i) disk.add("g", tokens_of(i, kTokens));
  for (auto _ : state) {
    EventTimes times;
    TimedCore core(config, times);
    core.brings_keys = state.range(0) != 0;
    for (const Recovered& event : disk.events(8)) core.step("recovered", event);
    for (std::uint32_t i = 0; i < kConversations; ++i) {
      const bool is_known = i % 2 == 0;
      core.step(is_known ? "forget_128k" : "forget_1k",
                Forget{"g", {}, tokens_of(i, is_known ? kTokens : 1000)});
      while (core.stats().forgets_waiting > 0) core.step("tick", Tick{});
    }
    for (std::uint32_t i = 0; i < 60; ++i) {
      core.step("forget_4m", Forget{"g", {}, tokens_of(1000 + i, 4 << 20)});
      while (core.stats().forgets_waiting > 0) core.step("tick_4m", Tick{});
    }
    times.report(state);
  }
}
BENCHMARK(events_of_deletions)->Iterations(1)->Unit(benchmark::kSecond)->ArgName("keys")->Arg(1)->Arg(0);

// A prompt whose 5,000 blocks are all on the disk: each load ends alone, while all the others are in flight.
void events_of_many_moves(benchmark::State& state) {
  constexpr std::uint32_t kMoves = 5'000;
  CoreConfig config;
  config.groups = {{.window = 0, .block_count = kMoves + 64, .disk_blocks = kMoves, .block_bytes = 1 << 10}};
  config.layers = 30;
  config.context_tokens = 1 << 20;
  config.max_batch_tokens = 8192;
  config.costs.token = kNanosPerSecond;  // loading is worth it
  const std::vector<TokenId> prompt = tokens_of(1, kMoves * kBlockTokens + 1);
  LeftOnDisk disk(config);
  disk.add("g", prompt);
  for (auto _ : state) {
    Core core = Core::make(config).value();
    core.step(0, disk.events(kMoves).front());
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
