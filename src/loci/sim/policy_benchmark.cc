// SPDX-License-Identifier: Apache-2.0
// Which policies are best: eviction orders and admission orders over traces, with too little memory in every
// tier, in virtual time. Prints the tables of docs/decisions/eviction.md.
//
//   policy_benchmark [bounds|leads] [chat|mooncake|agent|two-cores|four-gpus ...]
//
// The words choose traces and machines; without any of a kind all of it are run. `bounds` prints instead how
// near the policies come to Belady's bounds. `leads` prints which order of eviction is best: with five sizes
// of memory, three seeds, and a core that believes wrong costs of computing. It takes some twenty minutes.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "loci/policy/admission_order.h"
#include "loci/policy/eviction.h"
#include "loci/sim/policy_traces.h"
#include "loci/sim/world.h"

namespace loci::sim {
namespace {

// What computing and moving state costs somewhere; `token_bytes`: the state of one token.
struct PolicyMachine {
  const char* name;
  CostCurves curves;
  std::uint64_t token_bytes;
};

// The default model (135M, 4 bit) on two cores: 2,017 tokens a second in prompts of 512, 863 in prompts of
// 4,096 (docs/performance.md).
PolicyMachine two_cores() {
  CostCurves curves;
  curves.token = 400'000;
  curves.attention = {370};
  curves.pass = 3'400'000;
  curves.host_load = curves.host_save = {1'000, 5'000'000'000};
  curves.disk_read = {100'000, 1'000'000'000};
  curves.disk_write = {100'000, 500'000'000};
  return {"135M on two cores", curves, 23'040};
}

// LLaMA-65B on four A100 (AttentionStore §2.4): 2K tokens take 360 ms to compute, and 192 ms to load from
// host memory; disks give less than 5 GB/s.
PolicyMachine four_gpus() {
  CostCurves curves;
  curves.token = 160'000;
  curves.attention = {16};
  curves.pass = 40'000'000;
  curves.host_charge = curves.disk_charge = 0;  // copies are not the GPUs' work
  curves.host_load = curves.host_save = {20'000, 26'000'000'000};
  curves.disk_read = {100'000, 5'000'000'000};
  curves.disk_write = {100'000, 3'000'000'000};
  return {"65B on four A100", curves, 2'500'000};
}

// Capacities, in percent of the blocks that the whole trace leaves.
struct Capacity {
  std::uint32_t device, host, disk;
};

constexpr std::uint32_t kBatchTokens = 512, kScaledBatchLeast = 64;
constexpr Nanos kDecodes = 8;  // that share a pass, in the mean

std::uint32_t batch_of(std::uint32_t scale) { return std::max(kBatchTokens / scale, kScaledBatchLeast); }

// A pass of one row is to a full one as it was.
CostCurves costs_of(const PolicyMachine& machine, std::uint32_t scale) {
  CostCurves costs = scaled(machine.curves, scale);
  costs.pass = machine.curves.pass * batch_of(scale) * scale / kBatchTokens;
  return costs;
}

// A trace's size, if all state were kept.
struct TraceSize {
  std::uint64_t requests = 0, prompt_tokens = 0, reusable_tokens = 0, distinct_blocks = 0;
  std::uint32_t longest_tokens = 0;
  Nanos compute = 0;  // of what cannot be reused, and of replies
  Nanos lasts = 0;    // from the first arrival to the last, where nobody waits
};

WorldOptions options_of(const PolicyMachine& machine, std::uint32_t scale) {
  WorldOptions options;
  options.model.layers = options.core.layers = 30;
  options.core.costs = costs_of(machine, scale);
  options.machine.measured = options.core.costs;
  options.machine.host_load = options.core.costs.host_load;
  options.machine.host_save = options.core.costs.host_save;
  options.machine.disk_read = options.core.costs.disk_read;
  options.machine.disk_write = options.core.costs.disk_write;
  options.core.max_batch_tokens = batch_of(scale);
  options.core.max_running = 16;
  options.core.max_queued = 1u << 20;
  return options;
}

std::uint32_t blocks_for(std::uint64_t tokens) {
  return static_cast<std::uint32_t>(tokens / kBlockTokens + 2);
}

// By a run in which nobody waits and nothing is lost.
TraceSize size_of(const Trace& trace, WorldOptions options) {
  TraceSize size;
  std::uint64_t tokens = 0, longest = 0;
  for (const Conversation& talk : trace.conversations) {
    std::uint64_t length = 0;
    Nanos at = 0;
    for (const Turn& turn : talk.turns) {
      if (!turn.appends) length = 0;
      for (const Piece& piece : turn.pieces) length += piece.tokens;
      length += turn.reply_tokens;
      tokens += length;
      longest = std::max(longest, length);
      at = std::max(turn.at, at + turn.after);
    }
    size.lasts = std::max(size.lasts, at);
  }
  size.longest_tokens = static_cast<std::uint32_t>(longest);
  options.core.context_tokens = size.longest_tokens + kBlockTokens;
  options.core.groups = {
      {.block_count = blocks_for(std::min<std::uint64_t>(tokens, 1u << 28)), .block_bytes = 1}};
  options.record_uses = true;
  const WorldReport report = run_world(trace, options).value();
  const CostModel costs(options.core.costs);
  std::unordered_set<std::uint64_t> distinct;
  for (const BlockUse& use : report.uses) distinct.insert(use.block);
  size.distinct_blocks = distinct.size();
  for (const RequestRecord& record : report.requests) {
    ++size.requests;
    size.prompt_tokens += record.prompt_tokens;
    size.reusable_tokens += record.history_tokens;
    size.compute += costs.compute(record.history_tokens, record.prompt_tokens - record.history_tokens) +
                    record.reply_tokens * std::max(costs.curves().token, costs.curves().pass / kDecodes);
  }
  return size;
}

WorldOptions short_of_memory(const PolicyMachine& machine, std::uint32_t scale, const TraceSize& size,
                             const Capacity& capacity) {
  const auto share = [&](std::uint32_t percent) {
    return static_cast<std::uint32_t>(size.distinct_blocks * percent / 100);
  };
  WorldOptions options = options_of(machine, scale);
  // At least two of the longest requests.
  const std::uint32_t least = 2 * blocks_for(size.longest_tokens);
  options.core.groups = {{.block_count = std::max(share(capacity.device), least),
                          .host_blocks = share(capacity.host),
                          .disk_blocks = share(capacity.disk),
                          .block_bytes = machine.token_bytes * scale * kBlockTokens}};
  options.core.context_tokens = size.longest_tokens + kBlockTokens;
  options.core.hole_records = options.core.groups[0].disk_blocks;
  options.record_uses = true;
  return options;
}

void print_row(const std::string& eviction, const std::string& admission, const TraceSize& size,
               const WorldReport& report) {
  std::array<std::uint64_t, kTiers> from{};
  std::vector<Nanos> first;
  for (const RequestRecord& record : report.requests) {
    for (std::size_t tier = 0; tier < kTiers; ++tier) from[tier] += record.from[tier];
    if (record.first_token != kNever) first.push_back(record.first_token - record.arrived);
  }
  std::sort(first.begin(), first.end());
  double sum = 0;
  for (const Nanos time : first) sum += static_cast<double>(time) / 1e9;
  const double prompt = static_cast<double>(size.prompt_tokens);
  const auto percent = [prompt](std::uint64_t tokens) { return 100 * static_cast<double>(tokens) / prompt; };
  const std::uint64_t cached = from[0] + from[1] + from[2];
  const std::uint64_t lost = size.reusable_tokens - std::min(size.reusable_tokens, cached);
  const double count = static_cast<double>(std::max<std::size_t>(first.size(), 1));
  std::printf("| %-9s | %-11s | %5.1f | %5.1f | %5.1f | %5.1f | %8.1f | %8.2f | %8.2f |\n", eviction.c_str(),
              admission.c_str(), percent(from[0]), percent(from[1]), percent(from[2]), percent(cached),
              static_cast<double>(lost) / 1e3, sum / count,
              first.empty() ? 0 : static_cast<double>(first[(first.size() * 90 + 99) / 100 - 1]) / 1e9);
  std::fflush(stdout);
}

// A trace, and how short of memory and how busy the machine is with it.
struct Setting {
  ScaledTrace source;
  bool think_stretches = true;  // with the arrivals
  Capacity capacity;
};

// `load`: what computing takes that no memory saves, over the time in which requests come.
Trace at_load(const Setting& setting, const TraceSize& size, double load) {
  Trace trace = setting.source.trace;
  Nanos last = 0;
  for (const Conversation& talk : trace.conversations) last = std::max(last, talk.turns.front().at);
  const double wanted = static_cast<double>(size.compute) / load;
  const double times = wanted / static_cast<double>(setting.think_stretches ? size.lasts : last);
  const auto scale = [times](Nanos& time) { time = static_cast<Nanos>(static_cast<double>(time) * times); };
  for (Conversation& talk : trace.conversations) {
    for (Turn& turn : talk.turns) {
      scale(turn.at);
      if (setting.think_stretches) scale(turn.after);
    }
  }
  return trace;
}

void run_table(const PolicyMachine& machine, const Setting& setting, double load) {
  const std::uint32_t scale = setting.source.scale;
  const Capacity& capacity = setting.capacity;
  const TraceSize size = size_of(setting.source.trace, options_of(machine, scale));
  const Trace trace = at_load(setting, size, load);
  const WorldOptions base = short_of_memory(machine, scale, size, capacity);
  std::printf(
      "\n%s, %s: %llu requests, load %.2f; device, host and disk hold %u, %u and %u %% of %llu blocks; at "
      "most %.1f %% of prompt tokens can be reused\n\n",
      trace.name.c_str(), machine.name, static_cast<unsigned long long>(size.requests), load, capacity.device,
      capacity.host, capacity.disk, static_cast<unsigned long long>(size.distinct_blocks),
      100 * static_cast<double>(size.reusable_tokens) / static_cast<double>(size.prompt_tokens));
  std::printf(
      "| eviction | admission | device %% | host %% | disk %% | reused %% | computed again, k | TTFT mean s "
      "| p90 s |\n|---|---|---|---|---|---|---|---|---|\n");
  const CoreGroup& group = base.core.groups.front();
  const std::uint64_t slots = std::uint64_t{group.block_count} + group.host_blocks + group.disk_blocks;
  const auto run = [&](std::string_view eviction, std::string_view admission, bool bound,
                       std::uint32_t lookahead_requests = PolicySet().lookahead_requests) {
    WorldOptions options = base;
    options.core.eviction = eviction;
    options.core.admission = admission;
    options.core.lookahead_requests = lookahead_requests;
    const WorldReport report = run_world(trace, options).value();
    std::string order(admission);
    if (lookahead_requests != PolicySet().lookahead_requests)
      order += ", " + std::to_string(lookahead_requests) + " ahead";
    print_row(options.core.eviction, order, size, report);
    if (!bound) return;
    const double most = static_cast<double>(most_found(report.uses, slots)) * kBlockTokens;
    std::printf(
        "| Belady    | its order   |       |       |       | %5.1f |          |          |          |\n",
        100 * most / static_cast<double>(size.prompt_tokens));
  };
  for (const std::string_view eviction : kEvictionPolicies) run(eviction, "fcfs", eviction == "value");
  for (const std::string_view eviction : {"lru", "lookahead", "value"}) {
    run(eviction, "fpf", false);
    run(eviction, "relaxed-fpf", false);
    for (const std::uint32_t requests : {0u, 32u, kLookaheadUnlimited})
      run(eviction, "fcfs", false, requests);
  }
}

// The most that can be found and saved, and what would be found where the blocks that were used last are
// kept: in all slots as one pool, in those of the largest tier alone (as if it had a copy of all that others
// hold), and in one pool where it is known what is never needed again. In blocks, and in seconds of
// computing.
struct Bounds {
  std::uint64_t found = 0, recent = 0, recent_in_largest = 0, recent_unended = 0;
  double saved = 0;
};

Bounds bounds_of(const WorldReport& report, const CostModel& costs, std::uint64_t slots,
                 std::uint64_t largest) {
  std::vector<double> worth;
  for (const BlockUse& use : report.uses)
    worth.push_back(static_cast<double>(costs.compute(use.position, kBlockTokens)) * 1e-9);
  return {.found = most_found(report.uses, slots),
          .recent = recent_found(report.uses, slots, KnowsEnds::kNo),
          .recent_in_largest = recent_found(report.uses, largest, KnowsEnds::kNo),
          .recent_unended = recent_found(report.uses, slots, KnowsEnds::kYes),
          .saved = most_saved(report.uses, worth, slots)};
}

void print_bounds(const WorldReport& report, const CostModel& costs, const Bounds& bounds,
                  double prompt_tokens) {
  std::uint64_t cached = 0;
  double all = 0;
  for (const RequestRecord& record : report.requests) {
    cached += record.from[0] + record.from[1] + record.from[2];
    all += static_cast<double>(costs.compute(0, record.prompt_tokens)) * 1e-9;
  }
  const double saved = all - static_cast<double>(report.prompt_work) * 1e-9;
  const auto percent = [&](std::uint64_t blocks) {
    return 100 * static_cast<double>(blocks) * kBlockTokens / prompt_tokens;
  };
  const double most = static_cast<double>(bounds.found) * kBlockTokens;
  std::printf(" %.1f | %.1f | %.1f | %.1f | %.1f | %.2f | %.1f | %.1f | %.2f |\n",
              100 * static_cast<double>(cached) / prompt_tokens, percent(bounds.recent_in_largest),
              percent(bounds.recent), percent(bounds.recent_unended), percent(bounds.found),
              static_cast<double>(cached) / most, 100 * saved / all, 100 * bounds.saved / all,
              saved / bounds.saved);
  std::fflush(stdout);
}

constexpr std::array kSizes = {2u, 5u, 10u, 20u, 50u};

// Memory of so many percent of the trace's blocks, device : host : disk = 1 : 3 : 10; the device has room for
// two of the longest requests in any case.
WorldOptions of_size(const PolicyMachine& machine, std::uint32_t scale, const TraceSize& size,
                     std::uint32_t percent) {
  WorldOptions options = short_of_memory(machine, scale, size, {0, 0, 0});
  CoreGroup& group = options.core.groups.front();
  const auto all = static_cast<std::uint32_t>(size.distinct_blocks * percent / 100);
  group.block_count = std::max(all / 14, 2 * blocks_for(size.longest_tokens));
  group.host_blocks = all * 3 / 14;
  group.disk_blocks = options.core.hole_records = all * 10 / 14;
  return options;
}

// How near policies come to the bounds.
void run_bounds(const PolicyMachine& machine, const Setting& setting, double load) {
  const std::uint32_t scale = setting.source.scale;
  const TraceSize size = size_of(setting.source.trace, options_of(machine, scale));
  const Trace trace = at_load(setting, size, load);
  const double prompt = static_cast<double>(size.prompt_tokens);
  for (const std::uint32_t percent : kSizes) {
    WorldOptions options = of_size(machine, scale, size, percent);
    const CoreGroup& group = options.core.groups.front();
    const std::uint64_t slots = std::uint64_t{group.block_count} + group.host_blocks + group.disk_blocks;
    const CostModel costs(options.core.costs);
    for (const std::string_view eviction : {"lru", "lookahead", "value"}) {
      options.core.eviction = eviction;
      const WorldReport report = run_world(trace, options).value();
      std::printf("| %s, %s | %u %% | `%s` |", trace.name.c_str(), machine.name, percent,
                  std::string(eviction).c_str());
      print_bounds(report, costs, bounds_of(report, costs, slots, group.disk_blocks), prompt);
    }
  }
}

// --- which one leads ---

using TimeByOrder = std::array<double, kEvictionPolicies.size()>;  // mean to the first token, seconds

double mean_first_token(const WorldReport& report) {
  double sum = 0;
  for (const RequestRecord& record : report.requests)
    sum += static_cast<double>(record.first_token - record.arrived) * 1e-9;
  return sum / static_cast<double>(report.requests.size());
}

struct Busy {
  Trace trace;
  double share = 0;  // of the time in which conversations begin
};
constexpr double kBusyWanted = 0.7, kBusyNear = 0.02;

bool is_near(double busy) { return std::abs(busy - kBusyWanted) < kBusyNear; }

// Requests come so seldom that under `lru` the machine is busy for that share of the time in which
// conversations begin, or for the nearest that a few tries find. Whoever prints it says where that is not
// near.
Busy at_busy(const Setting& setting, const TraceSize& size, WorldOptions options) {
  constexpr int kTries = 10;
  options.core.eviction = "lru";
  options.record_uses = false;
  options.steady = true;
  Busy best;
  double load = kBusyWanted, less = 0, more = 0;  // loads that were found to be less and more than is wanted
  for (int i = 0; i < kTries && !is_near(best.share); ++i) {
    Trace trace = at_load(setting, size, load);
    const WorldReport report = run_world(trace, options).value();
    const double busy = static_cast<double>(report.prompt_time + report.decode_time + report.load_wait) /
                        static_cast<double>(report.counted_until);
    (busy < kBusyWanted ? less : more) = load;
    if (i == 0 || std::abs(busy - kBusyWanted) < std::abs(best.share - kBusyWanted))
      best = {std::move(trace), busy};
    load *= kBusyWanted / busy;
    if (less > 0 && more > 0 && (load <= less || load >= more)) load = std::sqrt(less * more);
  }
  return best;
}

// With what the core believes that computing costs, times `belief`.
WorldOptions believing(WorldOptions options, double belief) {
  const auto times = [belief](Nanos& cost) { cost = static_cast<Nanos>(static_cast<double>(cost) * belief); };
  CostCurves& costs = options.core.costs;
  times(costs.token);
  times(costs.pass);
  for (Nanos& cost : costs.attention) times(cost);
  return options;
}

struct LeadCell {
  const PolicyMachine* machine;
  const Setting* setting;
  std::uint32_t percent;
  double busy = 0;                 // share of the time, under `lru`
  std::vector<TimeByOrder> times;  // by belief
};
constexpr std::array kBeliefs = {1.0, 1.3, 1 / 1.3};

void run_cell(LeadCell& cell) {
  const std::uint32_t scale = cell.setting->source.scale;
  const TraceSize size = size_of(cell.setting->source.trace, options_of(*cell.machine, scale));
  WorldOptions options = of_size(*cell.machine, scale, size, cell.percent);
  options.record_uses = false;
  const auto [trace, busy] = at_busy(*cell.setting, size, options);
  cell.busy = busy;
  for (const double belief : kBeliefs) {
    TimeByOrder& times = cell.times.emplace_back();
    for (std::size_t i = 0; i < kEvictionPolicies.size(); ++i) {
      WorldOptions own = believing(options, belief);
      own.core.eviction = kEvictionPolicies[i];
      times[i] = mean_first_token(run_world(trace, own).value());
    }
  }
}

void print_leads(const std::vector<LeadCell>& cells) {
  std::printf("| trace, machine | memory | busy |");
  for (const std::string_view order : kEvictionPolicies) std::printf(" `%s` |", std::string(order).c_str());
  std::printf("\n|---|---|---|---|---|---|---|---|---|\n");
  TimeByOrder logs{}, near{};
  double count = 0;
  for (const LeadCell& cell : cells) {
    std::printf("| %s, %s | %u %% | %.0f %%%s |", cell.setting->source.trace.name.c_str(), cell.machine->name,
                cell.percent, 100 * cell.busy, is_near(cell.busy) ? "" : ", not what is wanted");
    for (const double time : cell.times.front()) std::printf(" %.3g |", time);
    std::printf("\n");
    for (const TimeByOrder& times : cell.times) {
      const double best = *std::ranges::min_element(times);
      ++count;
      for (std::size_t i = 0; i < times.size(); ++i) {
        logs[i] += std::log(times[i] / best);
        near[i] += times[i] <= 1.05 * best;
      }
    }
  }
  std::printf("| over the best, geometric mean | | |");
  for (const double log : logs) std::printf(" %.3f |", std::exp(log / count));
  std::printf("\n| within 5 %% of the best, %% | | |");
  for (const double share : near) std::printf(" %.0f |", 100 * share / count);
  std::printf("\n");
}

void run_leads(const std::vector<PolicyMachine>& machines, const std::vector<Setting>& settings) {
  std::vector<LeadCell> cells;
  for (const PolicyMachine& machine : machines) {
    for (const Setting& setting : settings) {
      for (const std::uint32_t percent : kSizes)
        cells.push_back({.machine = &machine, .setting = &setting, .percent = percent});
    }
  }
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (std::size_t cell = next++; cell < cells.size(); cell = next++) {
        run_cell(cells[cell]);
        std::fprintf(stderr, "%zu of %zu\n", cell + 1, cells.size());
      }
    });
  }
  threads.clear();
  print_leads(cells);
}

int run(const std::vector<std::string>& wanted) {
  // `name` is one of `kind`.
  const auto is_wanted_of = [&](std::initializer_list<const char*> kind, const char* name) {
    const auto is_named = [&](const char* one) { return std::ranges::find(wanted, one) != wanted.end(); };
    return is_named(name) || std::ranges::none_of(kind, is_named);
  };
  const auto is_wanted = [&](const char* name) { return is_wanted_of({"chat", "mooncake", "agent"}, name); };
  const auto is_mode = [&](const char* mode) { return std::ranges::find(wanted, mode) != wanted.end(); };
  const std::uint64_t seeds = is_mode("leads") ? 3 : 1;
  std::vector<Setting> settings;
  for (std::uint64_t seed = 1; seed <= seeds && is_wanted("chat"); ++seed) {
    if (auto trace = chat_trace(300, 120 * kNanosPerSecond, seed))
      settings.push_back({std::move(*trace), false, {.device = 4, .host = 12, .disk = 40}});
  }
  if (is_wanted("mooncake")) {
    if (auto trace = mooncake_trace(2000))
      settings.push_back({std::move(*trace), true, {.device = 4, .host = 12, .disk = 40}});
  }
  for (std::uint64_t seed = 1; seed <= seeds && is_wanted("agent"); ++seed) {
    if (auto trace = agent_trace(60, 15, seed))
      settings.push_back({std::move(*trace), true, {.device = 6, .host = 20, .disk = 60}});
  }
  if (settings.empty()) {
    std::fprintf(
        stderr,
        "policy_benchmark: no trace (expected $LOCI_SHARED_DATA or ../shared/data, and of chat, mooncake, "
        "agent)\n");
    return 1;
  }
  const bool bounds = is_mode("bounds");
  std::vector<PolicyMachine> machines;
  if (is_wanted_of({"two-cores", "four-gpus"}, "two-cores")) machines.push_back(two_cores());
  if (is_wanted_of({"two-cores", "four-gpus"}, "four-gpus")) machines.push_back(four_gpus());
  if (is_mode("leads")) {
    run_leads(machines, settings);
    return 0;
  }
  if (bounds)
    std::printf(
        "| trace, machine | memory | eviction | reused %% | last used, disk alone | in one pool | ends known "
        "| "
        "Belady | of it | computing saved %% | at most | of it |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const PolicyMachine& machine : machines) {
    for (const Setting& setting : settings)
      bounds ? run_bounds(machine, setting, 0.7) : run_table(machine, setting, 0.7);
  }
  return 0;
}

}  // namespace
}  // namespace loci::sim

int main(int argc, char** argv) { return loci::sim::run({argv + 1, argv + argc}); }
