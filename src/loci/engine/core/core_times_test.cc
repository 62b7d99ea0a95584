// SPDX-License-Identifier: Apache-2.0
// Passes and loads have a time, in virtual time: what running decodes wait for while prompts arrive, and how
// well predictions follow what passes and loads take.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/link_times.h"
#include "loci/engine/core/pass_times.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/policy/pass_budget.h"

namespace loci {
namespace {

constexpr Nanos kMilli = kNanosPerMilli;

// 1 ms a token, 0.2 ms for its attention to 1,024 others.
CostCurves true_costs() {
  CostCurves curves;
  curves.token = kMilli;
  curves.attention.clear();
  for (int power = 0; power <= 10; ++power) curves.attention.push_back(kMilli / 5 >> (10 - power));
  curves.pass = 10 * kMilli;
  return curves;
}

CostCurves times(CostCurves curves, Nanos by) {
  curves.token *= by;
  curves.pass *= by;
  for (Nanos& cost : curves.attention) cost *= by;
  return curves;
}

// The passes of a core on a machine that takes what `costs` say, or what slow() made of it.
class TimedCore {
 public:
  TimedCore(const CoreConfig& config, const CostCurves& costs)
      : core_(Core::make(config).value()), machine_(costs) {}

  void slow(const CostCurves& costs) { machine_ = CostModel(costs); }
  void arrive(std::uint64_t id, std::uint32_t prompt_tokens, std::uint32_t output_tokens) {
    take(core_.step(
        now_, Arrival{RequestId(id), "group", run_of(static_cast<std::uint32_t>(id) * 10'000, prompt_tokens),
                      output_tokens}));
  }
  // Runs the pass that was planned. False: there is none.
  bool run() {
    if (!planned_.pass) return false;
    const Plan plan = std::exchange(planned_, {});
    PassRows rows;
    PassDone done{plan.pass->id, {}};
    bool decodes = false;
    for (std::size_t i = 0; i < plan.spans.size(); ++i) {
      const Span& span = plan.pass->spans[i];
      const auto count = static_cast<std::uint32_t>(span.tokens.size());
      rows.add(span.position, count);
      decodes = decodes || decoding_[plan.spans[i].request];
      SpanOutcome& outcome = done.spans.emplace_back();
      if (!plan.spans[i].sample) continue;
      outcome.sample = TokenId(7);
      decoding_[plan.spans[i].request] = true;
    }
    const Nanos took = machine_.pass(rows.rows, rows.context);
    now_ += took;
    rows_ += rows.rows;
    (decodes ? waited_for : alone).push_back(took);
    rows_of_last = rows.rows;
    take(core_.step(now_, done));
    core_.check_invariants();
    return true;
  }
  std::uint64_t rows_in_all() const { return rows_; }

  std::vector<Nanos> waited_for, alone;  // times of passes: that decodes were in, and others
  std::uint32_t rows_of_last = 0;

 private:
  void take(Plan plan) {
    if (plan.pass) planned_ = std::move(plan);
  }

  Core core_;
  CostModel machine_;
  Nanos now_ = 0;
  Plan planned_;
  std::map<RequestId, bool> decoding_;
  std::uint64_t rows_ = 0;
};

CoreConfig timed_config(Nanos pass_time, Nanos believed_times = 1) {
  CoreConfig config = config_of(2'000);
  config.context_tokens = 4'096;
  config.pass_time = pass_time;
  config.costs = times(true_costs(), believed_times);
  return config;
}

// Two conversations decode while prompts arrive one after another.
Nanos longest_wait(TimedCore& core, int prompts) {
  core.arrive(1, 40, 600);
  core.arrive(2, 300, 600);
  for (int i = 0; i < 3; ++i) core.run();
  core.waited_for.clear();
  for (int i = 0; i < prompts; ++i) {
    core.arrive(10 + static_cast<std::uint64_t>(i), 900, 4);
    for (int pass = 0; pass < 14; ++pass) core.run();
  }
  return *std::max_element(core.waited_for.begin(), core.waited_for.end());
}

TEST(PassTime, LimitsWhatRunningDecodesWaitFor) {
  TimedCore core(timed_config(100 * kMilli), true_costs());
  const Nanos longest = longest_wait(core, 6);
  EXPECT_LE(longest, 100 * kMilli);
  EXPECT_GE(longest, 80 * kMilli) << "and what fits is used";
  TimedCore unlimited(timed_config(kNever), true_costs());
  EXPECT_GE(longest_wait(unlimited, 6), 500 * kMilli) << "a pass of 512 tokens";
}

TEST(PassTime, IsNoLimitWhereNobodyWaits) {
  TimedCore core(timed_config(100 * kMilli), true_costs());
  core.arrive(1, 1'024, 8);
  core.run();
  EXPECT_EQ(core.rows_of_last, 512u);
  core.run();
  EXPECT_EQ(core.rows_of_last, 512u);
  core.run();
  EXPECT_EQ(core.rows_of_last, 1u);
}

TEST(PassTime, CutsRowsToWhatKernelsLike) {
  TimedCore core(timed_config(100 * kMilli), true_costs());
  core.arrive(1, 40, 600);
  core.run();
  core.arrive(2, 400, 4);
  core.run();
  core.run();
  EXPECT_EQ(core.rows_of_last, 96u);
  EXPECT_LE(core.waited_for.back(), 100 * kMilli);
}

TEST(PassTime, NoPromptStarvesBesideDecodesThatTakeLonger) {
  TimedCore core(timed_config(5 * kMilli), true_costs());
  core.arrive(1, 40, 600);
  core.run();
  core.arrive(2, 100, 1);
  core.run();
  for (int i = 0; i < 4; ++i) core.run();
  EXPECT_EQ(core.alone.size() + core.waited_for.size(), 6u);
  EXPECT_EQ(core.rows_in_all(), 40u + 5u + 100u) << "the prompt was computed beside five tokens";
}

TEST(PassTime, PromptsGetHalfWhereDecodesAloneTakeLonger) {
  CostCurves large = true_costs();
  large.pass = 200 * kMilli;  // reading the weights
  CoreConfig config = timed_config(100 * kMilli);
  config.costs = large;
  TimedCore core(config, large);
  const Nanos longest = longest_wait(core, 3);
  EXPECT_LE(longest, 400 * kMilli);
  EXPECT_GE(longest, 350 * kMilli);
}

// Believed: three times as long, then a third, as where nothing was measured.
TEST(PassTime, BeliefsAreCorrectedByWhatPassesTook) {
  for (const bool too_slow : {true, false}) {
    const CostCurves machine = too_slow ? true_costs() : times(true_costs(), 3);
    CoreConfig config = timed_config(too_slow ? 100 * kMilli : 300 * kMilli, too_slow ? 3 : 1);
    TimedCore core(config, machine);
    longest_wait(core, 3);
    core.waited_for.clear();
    core.arrive(30, 900, 4);
    for (int pass = 0; pass < 10; ++pass) core.run();
    const Nanos longest = *std::max_element(core.waited_for.begin(), core.waited_for.end());
    EXPECT_LE(longest, config.pass_time + config.pass_time / 20) << too_slow;
    EXPECT_GE(longest, config.pass_time * 8 / 10) << too_slow;
  }
}

// The machine becomes half as fast under way (another program computes beside it).
TEST(PassTime, FollowsAMachineThatBecomesSlower) {
  TimedCore core(timed_config(200 * kMilli), true_costs());
  longest_wait(core, 3);
  core.slow(times(true_costs(), 2));
  core.arrive(30, 3'000, 4);
  for (int pass = 0; pass < 8; ++pass) core.run();
  core.waited_for.clear();
  for (int pass = 0; pass < 8; ++pass) core.run();
  EXPECT_LE(*std::max_element(core.waited_for.begin(), core.waited_for.end()), 210 * kMilli);
}

// --- loads ---

// Conversations that come back from one tier, on a link that takes what `link` says, a tenth more or less.
class TimedLoads {
 public:
  TimedLoads(Tier tier, const LinkCost& believed) : tier_(tier) {
    CoreConfig config = config_of(kDeviceBlocks);
    config.groups[0].block_bytes = 1'000'000;
    (tier == Tier::kHost ? config.groups[0].host_blocks : config.groups[0].disk_blocks) = 4'000;
    config.eviction = "lru";
    config.saves_max = kDeviceBlocks;
    config.costs = true_costs();
    (tier == Tier::kHost ? config.costs.host_load : config.costs.disk_read) = believed;
    core_.emplace(Core::make(config).value());
    step(Recovered{{}, 0, true});
  }

  // Lets conversation `id`, of so many whole blocks, come, and runs all to the end.
  void run(std::uint32_t id, std::uint32_t blocks) {
    arrive(id, blocks);
    while (pass_ends_ != kNever || !moves_.empty()) advance();
  }
  // The next request comes while this one's loads are under way.
  void run(std::uint32_t id, std::uint32_t blocks, std::uint32_t next, std::uint32_t next_blocks) {
    arrive(id, blocks);
    run(next, next_blocks);
  }
  // The median error of the predictions for all loads since the last call, in percent of the time taken.
  Nanos median_error() {
    std::sort(errors_.begin(), errors_.end());
    const Nanos median = errors_.at(errors_.size() / 2);
    errors_.clear();
    return median;
  }
  std::size_t loads() const { return errors_.size(); }

  static constexpr std::uint32_t kDeviceBlocks = 64;
  LinkCost link;

 private:
  void arrive(std::uint32_t id, std::uint32_t blocks) {
    const Tokens prompt = run_of(id * 10'000, std::size_t{blocks} * kBlockTokens + 1);
    step(Arrival{RequestId(++requests_), "group", prompt, 1, 0, {}, kNever});
  }
  void step(const Event& event) {
    Plan plan = core_->step(now_, event);
    core_->check_invariants();
    Nanos loaded_at = 0;
    MovesEnded loads, others;
    for (const Move& move : plan.moves) {
      (move.to == Tier::kDevice ? loads : others).moves.push_back({move.id, MoveResult::kDone, 0});
    }
    if (!loads.moves.empty()) {
      const Nanos bytes = static_cast<Nanos>(loads.moves.size()) * 1'000'000;
      const Nanos alone =
          link.latency + bytes * 1'000 / (static_cast<Nanos>(link.bytes_per_second) / 1'000'000);
      link_free_ = std::max(now_, link_free_) + alone * static_cast<Nanos>(90 + random_.below(21)) / 100;
      loaded_at = link_free_;
      moves_.emplace(loaded_at, std::move(loads));
    }
    if (!others.moves.empty()) moves_.emplace(now_ + 1, std::move(others));
    for (const Output& output : plan.outputs) {
      const auto* started = std::get_if<Started>(&output);
      if (started == nullptr || loaded_at == 0) continue;  // (what it needs was being loaded before)
      const Nanos took = loaded_at - now_;
      errors_.push_back(std::abs(started->sources.predicted_load - took) * 100 / took);
    }
    if (!plan.pass) return;
    planned_ = std::move(plan);
    pass_ends_ = now_ + 20 * kMilli;
  }
  void advance() {
    if (moves_.empty() || pass_ends_ < moves_.begin()->first) {
      PassDone done{planned_.pass->id, {}};
      for (const SpanPlan& span : planned_.spans)
        done.spans.push_back({true, span.sample ? std::optional(TokenId(7)) : std::nullopt});
      now_ = std::exchange(pass_ends_, kNever);
      return step(done);
    }
    const auto first = moves_.begin();
    now_ = std::max(now_, first->first);
    const MovesEnded ended = std::move(first->second);
    moves_.erase(first);
    step(ended);
  }

  Tier tier_;
  std::optional<Core> core_;
  Nanos now_ = 0, pass_ends_ = kNever, link_free_ = 0;
  Plan planned_;
  std::multimap<Nanos, MovesEnded> moves_;
  std::vector<Nanos> errors_;
  std::uint64_t requests_ = 0;
  Random random_{3};
};

// The link is five times slower than was believed, then faster, then slower again, under way.
TEST(LinkTimes, PredictionsFollowWhatLoadsTake) {
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    TimedLoads world(tier, {100'000, 2'000'000'000});
    world.link = {100'000, 2'000'000'000};
    Random random(5);
    const auto blocks_of = [](std::uint32_t id) { return 2 + id * 7 % 19; };
    const auto requests = [&](int count) {
      for (int i = 0; i < count; ++i) {
        const auto id = static_cast<std::uint32_t>(random.below(40));
        if (i % 3 != 0) {
          world.run(id, blocks_of(id));
        } else {
          const std::uint32_t next = (id + 1) % 40;
          world.run(id, blocks_of(id), next, blocks_of(next));
        }
      }
    };
    for (std::uint32_t id = 0; id < 40; ++id) world.run(id, blocks_of(id));
    const auto median_after = [&](std::uint64_t bytes_per_second, int learn) {
      world.link.bytes_per_second = bytes_per_second;
      requests(learn);
      if (world.loads() > 0) world.median_error();
      requests(60);
      EXPECT_GE(world.loads(), 30u);
      return world.median_error();
    };
    EXPECT_LE(median_after(400'000'000, 100), 20) << "five times slower than believed";
    EXPECT_LE(median_after(3'000'000'000, 15), 20) << "it has become faster";
    EXPECT_LE(median_after(200'000'000, 15), 20) << "and slow again";
  }
}

// Each load takes 8 ms beside its bytes, which nobody measured: threads wake one another, and each turn loads
// its last block by itself before the rest.
TEST(LinkTimes, PredictionsTellWhatALoadTakesBesideItsBytes) {
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    TimedLoads world(tier, {200'000, 1'000'000'000});
    world.link = {8 * kMilli, 1'000'000'000};
    const auto blocks_of = [](std::uint32_t id) { return id % 2 == 0 ? 1u : 10 + id * 7 % 21; };
    for (std::uint32_t id = 0; id < 40; ++id) world.run(id, blocks_of(id));
    Random random(5);
    for (int i = 0; i < 100; ++i) {
      const auto id = static_cast<std::uint32_t>(random.below(40));
      world.run(id, blocks_of(id));
    }
    EXPECT_GE(world.loads(), 60u);
    EXPECT_LE(world.median_error(), 15);
  }
}

TEST(LinkTimes, IsAsItsExampleSays) {
  CostCurves curves;
  curves.disk_read = {0, 1'000'000'000};
  const CostModel costs(curves);
  LinkTimes links(costs);
  const auto id = [](std::uint64_t number) { return OperationId(number); };
  EXPECT_EQ(links.book(LoadLink::kDisk, 30'000'000, {id(1), id(3)}, 3, 0), 30 * kMilli);
  EXPECT_EQ(links.book(LoadLink::kDisk, 10'000'000, {id(4), id(4)}, 1, 10 * kMilli), 40 * kMilli);
  for (const std::uint64_t move : {1, 2, 3})
    links.end(LoadLink::kDisk, id(move), MoveResult::kDone, 60 * kMilli);
  EXPECT_NEAR(static_cast<double>(links.load(LoadLink::kDisk, 0)), 3e6, 1e4);
  EXPECT_NEAR(static_cast<double>(links.load(LoadLink::kDisk, 10'000'000)), 22e6, 1e4);
  EXPECT_NEAR(static_cast<double>(links.free_at(LoadLink::kDisk)), 82e6, 1e4);
  links.end(LoadLink::kDisk, id(4), MoveResult::kDone, 83 * kMilli);
  EXPECT_EQ(links.free_at(LoadLink::kDisk), 83 * kMilli) << "nothing is booked";
  EXPECT_EQ(links.load(LoadLink::kHost, 1 << 30), costs.load(Tier::kHost, 1 << 30)) << "another link";
}

// A store over a thin line and peers in the same rack are one tier, and two links.
TEST(LinkTimes, PeersBesideAStoreHaveALinkOfTheirOwn) {
  CostCurves curves;
  curves.shared_read = {0, 1'000'000};
  const CostModel costs(curves);
  LinkTimes links(costs);
  constexpr Nanos kPeers = 1 * kMilli + kNanosPerSecond / 100;  // as assumed
  constexpr std::uint64_t kBytes = (std::uint64_t{1} << 30) / 100;
  const auto id = [](std::uint64_t number) { return OperationId(number); };
  links.book(LoadLink::kShared, 10'000'000, {id(1), id(2)}, 1, 0);
  EXPECT_NEAR(static_cast<double>(links.book(LoadLink::kPeers, kBytes, {id(1), id(2)}, 1, 0)), kPeers, 1e3)
      << "it does not wait for the store";
  links.end(LoadLink::kShared, id(1), MoveResult::kDone, 60 * kNanosPerSecond);
  EXPECT_NEAR(static_cast<double>(links.load(LoadLink::kPeers, kBytes)), kPeers, 1e3);
  links.end(LoadLink::kPeers, id(2), MoveResult::kDone, 60 * kNanosPerSecond);
  EXPECT_GT(links.load(LoadLink::kPeers, kBytes), 30 * kNanosPerSecond);
  EXPECT_NEAR(static_cast<double>(links.load(LoadLink::kShared, 10'000'000)), 60e9, 1e8) << "still its own";
  EXPECT_NEAR(static_cast<double>(links.load(LoadLink::kShared, 1'000'000)), 6e9, 1e7);
}

// Corrections are of the costs that they were learnt of.
TEST(LinkTimes, NewCostsForgetWhatTheFormerOnesTaught) {
  CostCurves curves;
  curves.disk_read = {0, 1'000'000'000};
  CostModel costs(curves);
  LinkTimes links(costs);
  const auto id = [](std::uint64_t number) { return OperationId(number); };
  links.book(LoadLink::kDisk, 10'000'000, {id(1), id(1)}, 1, 0);
  links.end(LoadLink::kDisk, id(1), MoveResult::kDone, 40 * kMilli);
  EXPECT_EQ(links.load(LoadLink::kDisk, 10'000'000), 40 * kMilli);
  links.book(LoadLink::kDisk, 10'000'000, {id(2), id(2)}, 1, 50 * kMilli);
  curves.disk_read = {0, 500'000'000};
  costs = CostModel(curves);
  links.costs_changed(60 * kMilli);
  EXPECT_EQ(links.load(LoadLink::kDisk, 10'000'000), 20 * kMilli);
  EXPECT_EQ(links.free_at(LoadLink::kDisk), 80 * kMilli) << "what is booked is expected anew";
  links.end(LoadLink::kDisk, id(2), MoveResult::kDone, 70 * kMilli);
  EXPECT_EQ(links.load(LoadLink::kDisk, 10'000'000), 20 * kMilli) << "as it took: from its booking on";
}

// A token costs so much wherever it stands, and a pass nothing beside its tokens.
CostModel of_tokens(Nanos token) {
  CostCurves curves;
  curves.token = token;
  curves.attention = {0};
  curves.pass = 0;
  return CostModel(curves);
}

TEST(PassTime, NewCostsForgetWhatTheFormerOnesTaught) {
  CostModel costs = of_tokens(kMilli);
  PassTimes times(costs, kNever);
  const PassWork work{PassKind::kPrompts, {100, 0}};
  times.begin(work, false, 0);
  times.end({.layers = 1}, 300 * kMilli);
  EXPECT_EQ(times.predict(work), 300 * kMilli);
  times.begin(work, false, 400 * kMilli);
  costs = of_tokens(2 * kMilli);
  times.costs_changed();
  EXPECT_EQ(times.predict(work), 200 * kMilli);
  times.end({.layers = 1}, 900 * kMilli);
  EXPECT_EQ(times.predict(work), 200 * kMilli) << "a pass that began before is not counted";
}

// A server that brings back state in every turn has no pass that waits for nothing.
TEST(PassTime, WhatWaitedForLoadsTeachesThatComputingTakesNoLonger) {
  const CostModel costs = of_tokens(3 * kMilli);
  PassTimes times(costs, kNever);
  const PassWork work{PassKind::kPrompts, {100, 0}};
  times.begin(work, true, 0);
  times.end({.layers = 1}, 900 * kMilli);
  EXPECT_EQ(times.predict(work), 300 * kMilli) << "it waited";
  times.begin(work, true, kNanosPerSecond);
  times.end({.layers = 1}, kNanosPerSecond + 120 * kMilli);
  EXPECT_EQ(times.predict(work) / kMilli, 119);
  EXPECT_EQ(times.compute(0, 50) / kMilli, 59);
}

// A failing disk would teach that computing is fast.
TEST(PassTime, SpansThatWereGivenUpTeachNothingNorWhatWaitedAndIsNearThePrediction) {
  const CostModel costs = of_tokens(3 * kMilli);
  PassTimes times(costs, kNever);
  const PassWork work{PassKind::kPrompts, {100, 0}};
  for (int i = 0; i < 9; ++i) {
    times.begin(work, true, 0);
    times.end({.layers = 1, .is_whole = false}, 30 * kMilli);
    times.begin(work, true, 0);
    times.end({.layers = 1}, 270 * kMilli);
  }
  EXPECT_EQ(times.predict(work), 300 * kMilli);
}

TEST(PassTime, ProjectingIsCorrectedByWhatPassesTookForIt) {
  CostCurves curves;
  curves.projection = 10'000;  // 320 us a block
  CostModel costs(curves);
  PassTimes times(costs, kNever);
  constexpr std::uint32_t kLayers = 30;
  const auto pass = [&](const Projected& projected) {
    times.begin({PassKind::kPrompts, {17, 0}}, true, 0);
    times.end({.projected = projected, .layers = kLayers}, kNanosPerSecond);
    return times.project_block();
  };
  EXPECT_EQ(pass({}), 320'000) << "nothing was projected";
  EXPECT_EQ(pass({2 * kLayers, 900 * kMilli}), 320'000) << "too little to tell";
  EXPECT_EQ(pass({100 * kLayers, 64 * kMilli}), 640'000) << "twice what was predicted";
  EXPECT_EQ(pass({100 * kLayers, 640 * kMilli}), 640'000) << "the median of two is the lesser";
  EXPECT_EQ(pass({100 * kLayers, 64 * kMilli}), 640'000);
  curves.projection = 15'000;
  costs = CostModel(curves);
  times.costs_changed();
  EXPECT_EQ(times.project_block(), 480'000);
  curves.projection = 0;
  costs = CostModel(curves);
  times.costs_changed();
  EXPECT_EQ(pass({100 * kLayers, 64 * kMilli}), 0) << "nobody measured it, so no plan is to choose it";
}

TEST(LinkTimes, WhatFailedTeachesNothingAndWhatWasGivenUpThatItIsSlower) {
  CostCurves curves;
  curves.disk_read = {0, 1'000'000'000};
  const CostModel costs(curves);
  LinkTimes links(costs);
  const auto end = [&](std::uint64_t move, MoveResult result, Nanos begin, Nanos took) {
    links.book(LoadLink::kDisk, 10'000'000, {OperationId(move), OperationId(move)}, 1, begin);
    links.end(LoadLink::kDisk, OperationId(move), result, begin + took);
    return links.load(LoadLink::kDisk, 10'000'000);
  };
  EXPECT_EQ(end(1, MoveResult::kFailed, 0, 900 * kMilli), 10 * kMilli);
  EXPECT_EQ(end(2, MoveResult::kDamaged, kNanosPerSecond, 1), 10 * kMilli);
  EXPECT_EQ(end(3, MoveResult::kTooSlow, 2 * kNanosPerSecond, 5 * kMilli), 10 * kMilli);
  EXPECT_EQ(end(4, MoveResult::kTooSlow, 3 * kNanosPerSecond, 80 * kMilli), 80 * kMilli);
  links.advance(4 * kNanosPerSecond + LinkTimes::kQuiet);
  EXPECT_EQ(links.load(LoadLink::kDisk, 10'000'000), 40 * kMilli) << "a link that is quiet is tried again";
  links.advance(5 * kNanosPerSecond + 3 * LinkTimes::kQuiet);
  EXPECT_EQ(links.load(LoadLink::kDisk, 10'000'000), 10 * kMilli)
      << "each quiet minute counts, in one step too";
}

TEST(PassTime, ZeroIsRefused) {
  const Status status = Core::make(timed_config(0)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "pass_time");
}

}  // namespace
}  // namespace loci
