// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/restore_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "loci/base/random.h"
#include "loci/base/rounds_testing.h"

namespace loci {
namespace {

constexpr RestoreRule kEveryRule[] = {
    RestoreRule::kKv,        RestoreRule::kRecompute,        RestoreRule::kPensieve,
    RestoreRule::kTokenWise, RestoreRule::kTokenWiseRounded, RestoreRule::kNaiveHybrid,
    RestoreRule::kHidden,    RestoreRule::kHcache,           RestoreRule::kAuto,
};

// Blocks [0, count) of one tier, at 100 + 10 i to compute and `load` to load.
RestoreProblem problem_of(std::uint32_t count, Tier from, Nanos load) {
  RestoreProblem problem;
  for (std::uint32_t i = 0; i < count; ++i)
    problem.blocks.push_back({.number = i, .from = from, .compute = 100 + 10 * i, .load = load});
  problem.layers = 10;
  return problem;
}

// Of a block that is loaded: as hidden states.
bool as_hidden(const RestorePlan& plan, const RestorableBlock& block) {
  return block.only_hidden || (block.hidden && block.number >= plan.hidden_from);
}

std::string sources(const RestoreProblem& problem, const RestorePlan& plan) {
  std::string out;
  for (const RestorableBlock& block : problem.blocks)
    out += !plan.loads(block) ? 'c' : as_hidden(plan, block) ? 'H' : 'L';
  return out;
}

std::string sources(const RestoreProblem& problem, RestoreRule rule) {
  return sources(problem, plan_restore(problem, rule));
}

// The header's model, said again for any choice: bit i of `computed` and of `hidden` is of blocks[i].
RestoreTimes naive_times(const RestoreProblem& problem, std::uint32_t computed, std::uint32_t hidden = 0) {
  Nanos compute = problem.computed_anyway, first = 0, last = 0;
  Nanos chosen = 0, chosen_in_round = 0, first_round = 0, last_round = 0;
  for (const Tier tier : {Tier::kHost, Tier::kDisk, Tier::kShared}) {
    const bool rounds = tier == Tier::kShared && problem.shared_rounds > 0;
    const RestoreLink& link = problem.links[static_cast<std::size_t>(tier)];
    Nanos load = 0, layer = 0, round = 0;
    bool any = false;
    for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
      const RestorableBlock& block = problem.blocks[i];
      if (block.from != tier) continue;
      if ((computed >> i & 1) != 0) {
        compute += block.compute;
        chosen += block.compute;
        if (problem.shared_rounds > 0) chosen_in_round += block.compute / problem.shared_rounds;
        continue;
      }
      any = true;
      const bool hides = (hidden >> i & 1) != 0;
      compute += hides ? block.hidden->charge : block.charge;
      const Nanos one = hides ? block.hidden->load : block.load;
      load += one;
      layer += one / problem.layers;
      if (rounds) round += one / problem.shared_rounds;
    }
    if (any && rounds) {
      first_round = link.booked + link.latency + round;
      last_round = link.booked + link.latency + load;
    } else if (any) {
      first = std::max(first, link.booked + link.latency + layer + problem.computed_anyway);
      last = std::max(last, link.booked + link.latency + load);
    } else if (link.awaited) {
      (rounds ? last_round : last) = std::max(rounds ? last_round : last, link.booked);
    }
  }
  Nanos ready = std::max(problem.compute_booked + compute, first);
  if (last > 0)
    ready = std::max(ready, last + problem.computed_anyway - problem.first_reading +
                                problem.first_reading / problem.layers);
  if (first_round > 0) ready = std::max(ready, first_round + problem.computed_anyway + chosen);
  if (last_round > 0) {
    const Nanos reading = problem.first_reading / problem.shared_rounds + chosen_in_round;
    ready = std::max(ready, last_round + problem.computed_anyway - problem.first_reading + reading);
  }
  return {ready, compute, 8 * ready + compute * (8 * problem.others + 1)};
}

std::uint32_t computed_by(const RestoreProblem& problem, const RestorePlan& plan) {
  std::uint32_t out = 0;
  for (std::size_t i = 0; i < problem.blocks.size(); ++i)
    if (!plan.loads(problem.blocks[i])) out |= 1u << i;
  return out;
}

std::uint32_t hidden_by(const RestoreProblem& problem, const RestorePlan& plan) {
  std::uint32_t out = 0;
  for (std::size_t i = 0; i < problem.blocks.size(); ++i)
    if (plan.loads(problem.blocks[i]) && as_hidden(plan, problem.blocks[i])) out |= 1u << i;
  return out;
}

// The disk has the same blocks as hidden states, too.
void add_hidden(Random& random, RestoreProblem& problem, std::uint64_t one_in = 1) {
  std::optional<HiddenLoad> hidden;
  for (RestorableBlock& block : problem.blocks) {
    if (block.from != Tier::kDisk || random.below(one_in) != 0) continue;
    if (!hidden) {
      const auto most = [&](Nanos time) {
        return static_cast<Nanos>(random.below(static_cast<std::uint64_t>(time) + 1));
      };
      const auto cut = [](Nanos time) { return std::clamp<Nanos>(time, 0, 1'000'000 * kNanosPerSecond); };
      hidden = {.load = most(cut(block.load)),
                .charge = cut(block.charge) + most(std::min(2 * cut(block.load), cut(block.compute)))};
    }
    block.hidden = hidden;
  }
}

RestoreProblem random_problem(Random& random, std::uint32_t blocks_max) {
  const auto below = [&](std::uint64_t most) { return static_cast<Nanos>(random.below(most)); };
  // Ties are as likely as what is far apart.
  const std::uint64_t scale = std::uint64_t{1} << (1 + random.below(20));
  RestoreProblem problem;
  Nanos compute = below(scale);
  const std::array<Nanos, kTiers> load = {0, below(scale), below(4 * scale), below(4 * scale)};
  const std::array<Nanos, kTiers> charge = {0, below(scale / 2 + 1), below(scale / 2 + 1),
                                            below(scale / 2 + 1)};
  const std::uint64_t on_host = random.below(101);
  // Every second problem has others that share state, half of them in rounds.
  const std::uint64_t shared = random.below(2) == 0 ? 0 : random.below(101);
  problem.shared_rounds = static_cast<std::uint32_t>(random.below(2) == 0 ? 0 : 1 + random.below(5));
  for (std::uint64_t i = random.below(blocks_max + 1); i > 0; --i) {
    const std::uint32_t before = problem.blocks.empty() ? 0 : problem.blocks.back().number + 1;
    const bool is_shared = random.below(100) < shared;
    const Tier from = is_shared ? Tier::kShared : random.below(100) < on_host ? Tier::kHost : Tier::kDisk;
    const auto tier = static_cast<std::size_t>(from);
    compute += below(scale / 8 + 1);
    problem.blocks.push_back({.number = before + static_cast<std::uint32_t>(random.below(3)),
                              .from = from,
                              .compute = compute,
                              .load = load[tier],
                              .charge = charge[tier]});
  }
  for (const std::size_t tier : {1u, 2u, 3u}) {
    problem.links[tier] = {.booked = random.below(2) == 0 ? 0 : below(8 * scale),
                           .latency = below(scale),
                           .awaited = random.below(3) == 0};
  }
  problem.compute_booked = random.below(2) == 0 ? 0 : below(8 * scale);
  problem.computed_anyway = below(8 * scale);
  problem.first_reading =
      static_cast<Nanos>(random.below(static_cast<std::uint64_t>(problem.computed_anyway) + 1));
  problem.layers = 1 + static_cast<std::uint32_t>(random.below(40));
  problem.others = static_cast<std::uint32_t>(random.below(2) == 0 ? 0 : random.below(5));
  return problem;
}

TEST(RestorePlan, ComputesLeadingBlocksWhileTheRestIsLoaded) {
  RestoreProblem problem = problem_of(8, Tier::kDisk, 100);
  // 3 blocks are 330, 5 loads 500 and a layer; 4 blocks 460, 4 loads 400.
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "ccccLLLL");
  EXPECT_EQ(plan_restore(problem, RestoreRule::kAuto).times.ready, 460);
  EXPECT_EQ(sources(problem, RestoreRule::kKv), "LLLLLLLL");
  EXPECT_EQ(plan_restore(problem, RestoreRule::kKv).times.ready, 800);
  EXPECT_EQ(sources(problem, RestoreRule::kRecompute), "cccccccc");
  EXPECT_EQ(plan_restore(problem, RestoreRule::kRecompute).times.ready, 1'080);
}

TEST(RestorePlan, NamedPlansAreThePapers) {
  RestoreProblem problem = problem_of(8, Tier::kDisk, 100);
  // 800 of 1,880: 3.4 of 8 blocks.
  EXPECT_EQ(sources(problem, RestoreRule::kTokenWise), "cccLLLLL");
  EXPECT_EQ(sources(problem, RestoreRule::kTokenWiseRounded), "ccccLLLL");
  EXPECT_EQ(sources(problem, RestoreRule::kNaiveHybrid), "ccccLLLL");
  EXPECT_EQ(sources(problem, RestoreRule::kPensieve), "cccccccc") << "it has no disk";
  for (std::size_t i = 3; i < 8; ++i) problem.blocks[i].from = Tier::kHost;
  EXPECT_EQ(sources(problem, RestoreRule::kPensieve), "cccLLLLL");
  // Both links bring at a time: 500 of 1,580 is 2.5 of 8 blocks.
  EXPECT_EQ(sources(problem, RestoreRule::kTokenWise), "ccLLLLLL");
}

TEST(RestorePlan, NewTokensAreComputedMeanwhile) {
  RestoreProblem problem = problem_of(8, Tier::kDisk, 100);
  problem.computed_anyway = problem.first_reading = 1'000;
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "LLLLLLLL") << "the link has ended before";
  problem.compute_booked = 0;
  problem.first_reading = 0;  // nothing of it may begin before the last load: it is another pass
  EXPECT_EQ(sources(problem, RestoreRule::kAuto)[0], 'c');
}

TEST(RestorePlan, LoadsChargeTheProcessor) {
  RestoreProblem problem = problem_of(8, Tier::kHost, 1);
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "LLLLLLLL");
  for (RestorableBlock& block : problem.blocks) block.charge = 125;
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "cccLLLLL") << "these are computed sooner than copied";
}

TEST(RestorePlan, WhatIsBookedIsWaitedFor) {
  RestoreProblem problem = problem_of(8, Tier::kDisk, 10);
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "LLLLLLLL");
  problem.links[2].booked = 2'000;
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "cccccccc") << "computing all ends before that";
  problem.compute_booked = 2'000;
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "LLLLLLLL") << "so does the processor come late";
}

// A link that is much faster has the processor to itself: little is gained by computing.
TEST(RestorePlan, ComputesOnlyWhatIsWorthAnEighthOfItsTime) {
  RestoreProblem problem = problem_of(8, Tier::kDisk, 12);
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "LLLLLLLL");
  for (RestorableBlock& block : problem.blocks) block.load = 20;
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "cLLLLLLL");
}

// What is computed delays others, what is loaded does not.
TEST(RestorePlan, SparesTheProcessorWhereOthersWantIt) {
  RestoreProblem problem = problem_of(8, Tier::kDisk, 100);
  problem.others = 1;
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "LLLLLLLL");
}

// Each of MemServe's factors (table 5) decides whether reuse is worth it, the others being equal. Costs are
// those of a model: 1 ms for a block's tokens and 1 us more for each block before it, 32 KiB a token, a link
// of 200 MB/s with 5 ms before the first byte.
TEST(RestorePlan, WeighsMemServesFactors) {
  struct Case {
    std::uint32_t prompt = 64;  // blocks
    std::uint32_t cached = 48;  // of them
    Tier from = Tier::kDisk;
    std::uint32_t others = 0;
    std::uint32_t block_tokens = 32;
  };
  const auto loads = [](const Case& is) {
    RestoreProblem problem;
    const Nanos bytes_per_second = is.from == Tier::kHost ? 4'000'000'000 : 200'000'000;
    const auto compute = [&](std::uint32_t number) {
      return kNanosPerMilli * is.block_tokens / 32 + number * kNanosPerMilli / 1'000;
    };
    for (std::uint32_t i = 0; i < is.cached; ++i)
      problem.blocks.push_back(
          {.number = i,
           .from = is.from,
           .compute = compute(i),
           .load = Nanos{is.block_tokens} * 32'768 * kNanosPerSecond / bytes_per_second});
    for (std::uint32_t i = is.cached; i < is.prompt; ++i) problem.computed_anyway += compute(i);
    problem.links[static_cast<std::size_t>(is.from)].latency = 5 * kNanosPerMilli;
    problem.layers = 30;
    problem.others = is.others;
    const RestorePlan plan = plan_restore(problem, RestoreRule::kAuto);
    EXPECT_EQ(plan.computing_all.compute, plan_restore(problem, RestoreRule::kRecompute).times.compute);
    EXPECT_EQ(plan.loading_all.ready, plan_restore(problem, RestoreRule::kKv).times.ready) << "both are told";
    return static_cast<double>(std::ranges::count(sources(problem, plan), 'L')) / is.cached;
  };
  const double usual = loads({});
  EXPECT_LT(usual, 0.3) << "a block comes in 5.2 ms and is computed in 1: few come meanwhile";
  EXPECT_GT(loads({.from = Tier::kHost}), 0.7) << "the place: 0.3 ms";
  EXPECT_GT(loads({.prompt = 8'000, .cached = 6'000}), 1.5 * usual)
      << "the length: attention makes late blocks dear";
  EXPECT_EQ(loads({.others = 30}), 1) << "the batch: what is computed delays 30 others";
  EXPECT_GT(loads({.cached = 60, .from = Tier::kHost}), 0.7);
  EXPECT_EQ(loads({.prompt = 5, .cached = 4, .from = Tier::kHost}), 0)
      << "4 ms are computed before the first byte";
  EXPECT_GT(loads({.prompt = 64, .cached = 40, .from = Tier::kHost}), 0.5) << "the ratio";
  EXPECT_EQ(loads({.prompt = 64, .cached = 4, .from = Tier::kHost}), 0);
  EXPECT_EQ(loads({.prompt = 64, .cached = 40, .from = Tier::kHost, .block_tokens = 1}), 0)
      << "the blocks' size";
}

// Every choice of every block, where a tier's blocks are alike.
// What is computed beside loads that come in rounds waits for the first one, and its last layers for the
// last.
TEST(RestorePlan, InOneRoundAllIsComputedBehindTheLastLoad) {
  RestoreProblem problem = problem_of(8, Tier::kShared, 100);
  for (RestorableBlock& block : problem.blocks) block.compute = 110;
  problem.computed_anyway = problem.first_reading = 200;
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "cccLLLLL") << "530 beside 500, and a layer";
  problem.shared_rounds = 1;
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "LLLLLLLL") << "110 more behind them for 100 fewer";
  EXPECT_EQ(plan_restore(problem, RestoreRule::kAuto).times.ready, 1'000);
  problem.shared_rounds = 4;
  // The first of four rounds until 125, and 530 behind it; the last until 500, and 131 behind it.
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "cccLLLLL");
  EXPECT_EQ(plan_restore(problem, RestoreRule::kAuto).times.ready, 655);
  EXPECT_EQ(plan_restore(problem, RestoreRule::kKv).times.ready, 850);
}

// The more rounds, the sooner it is ready.
TEST(RestorePlan, MoreTurnsAreNeverWorse) {
  Random random(11);
  for (int i = 0; i < 2'000; ++i) {
    RestoreProblem problem = random_problem(random, 12);
    Nanos before = std::numeric_limits<Nanos>::max() / 2;
    for (const std::uint32_t rounds : {1u, 2u, 4u, 8u}) {
      problem.shared_rounds = rounds;
      const Nanos ready = plan_restore(problem, RestoreRule::kKv).times.ready;
      // (Each block's share is rounded down.)
      ASSERT_LE(ready, before + static_cast<Nanos>(problem.blocks.size())) << i;
      before = ready;
    }
  }
}

TEST(RestorePlan, AutoEqualsExhaustiveSearch) {
  Random random(5);
  std::uint32_t mixed = 0;
  for (int i = 0; i < 20'000; ++i) {
    const RestoreProblem problem = random_problem(random, 9);
    Nanos least = std::numeric_limits<Nanos>::max();
    for (std::uint32_t computed = 0; computed < 1u << problem.blocks.size(); ++computed)
      least = std::min(least, naive_times(problem, computed).price);
    const RestorePlan plan = plan_restore(problem, RestoreRule::kAuto);
    const std::uint32_t computed = computed_by(problem, plan);
    ASSERT_EQ(plan.times.price, least) << i << " " << sources(problem, plan);
    ASSERT_EQ(naive_times(problem, computed).price, least) << i << " " << sources(problem, plan);
    mixed += computed != 0 && computed + 1 != 1u << problem.blocks.size();
  }
  EXPECT_GT(mixed, 2'000u) << "most problems had nothing to weigh";
}

// Every choice of every block, where all of the disk's are in both forms.
TEST(RestorePlan, AutoEqualsExhaustiveSearchOfBothForms) {
  Random random(9);
  std::uint32_t mixed = 0, with_computed = 0;
  for (int i = 0; i < 8'000; ++i) {
    RestoreProblem problem = random_problem(random, 6);
    add_hidden(random, problem);
    if (i % 4 != 0) {  // who is alone, and whose blocks take the most of the time
      problem.others = 0;
      problem.compute_booked = problem.computed_anyway = problem.first_reading = 0;
    }
    std::uint32_t disk = 0;
    for (std::size_t b = 0; b < problem.blocks.size(); ++b)
      disk |= problem.blocks[b].from == Tier::kDisk ? 1u << b : 0u;
    Nanos least = std::numeric_limits<Nanos>::max();
    for (std::uint32_t computed = 0; computed < 1u << problem.blocks.size(); ++computed) {
      const std::uint32_t may = disk & ~computed;
      for (std::uint32_t hidden = may;; hidden = (hidden - 1) & may) {
        least = std::min(least, naive_times(problem, computed, hidden).price);
        if (hidden == 0) break;
      }
    }
    const RestorePlan plan = plan_restore(problem, RestoreRule::kAuto);
    const std::uint32_t computed = computed_by(problem, plan), hidden = hidden_by(problem, plan);
    ASSERT_EQ(plan.times.price, least) << i << " " << sources(problem, plan);
    ASSERT_EQ(naive_times(problem, computed, hidden).price, least) << i << " " << sources(problem, plan);
    mixed += hidden != 0 && (disk & ~computed) != hidden;
    with_computed += hidden != 0 && computed != 0;
  }
  EXPECT_GT(mixed, 100u) << "most problems had nothing to weigh";
  EXPECT_GT(with_computed, 100u);
}

// HCache §4.1.2's two cases: projecting takes longer than loading what is projected, or less long.
TEST(RestorePlan, HcacheIsItsClosedForm) {
  RestoreProblem problem = problem_of(10, Tier::kDisk, 400);
  for (RestorableBlock& block : problem.blocks) block.hidden = {.load = 200, .charge = 300};
  // ceil(10 * 400 / (400 + 300 - 200)) = 8
  EXPECT_EQ(sources(problem, RestoreRule::kHcache), "LLHHHHHHHH");
  EXPECT_EQ(sources(problem, RestoreRule::kHidden), "HHHHHHHHHH");
  EXPECT_EQ(sources(problem, RestoreRule::kKv), "LLLLLLLLLL");
  for (RestorableBlock& block : problem.blocks)
    block.compute = 300, block.hidden = {.load = 200, .charge = 100};
  // ceil(10 * 300 / (300 + 200 - 100)) = 8
  EXPECT_EQ(sources(problem, RestoreRule::kHcache), "ccHHHHHHHH");
  EXPECT_EQ(sources(problem, RestoreRule::kAuto), "ccHHHHHHHH")
      << "1,600 of the link, 1,400 of the processor";
  // One form, which the disk has of each: the same.
  for (RestorableBlock& block : problem.blocks)
    block = {.number = block.number,
             .from = Tier::kDisk,
             .compute = 300,
             .load = 200,
             .charge = 100,
             .only_hidden = true};
  EXPECT_EQ(sources(problem, RestoreRule::kHcache), "ccHHHHHHHH");
  EXPECT_EQ(sources(problem, RestoreRule::kKv), "HHHHHHHHHH") << "there is nothing else to load";
}

// On a fast link hidden states lose, on a slow one they win.
TEST(RestorePlan, TheLinkDecidesBetweenTheForms) {
  const auto hidden_of = [](Nanos load) {
    RestoreProblem problem = problem_of(20, Tier::kDisk, load);
    for (RestorableBlock& block : problem.blocks)
      block.compute = 10'000, block.hidden = {.load = load / 2, .charge = 300};
    const std::string text = sources(problem, RestoreRule::kAuto);
    return std::count(text.begin(), text.end(), 'H');
  };
  EXPECT_EQ(hidden_of(60), 0) << "an eighth of projecting is more than the link saves";
  EXPECT_EQ(hidden_of(1'000), 20);
  EXPECT_GT(hidden_of(400), 0);
  EXPECT_LT(hidden_of(400), 20);
}

TEST(RestorePlan, WithoutAPriceOfProjectingNothingIsHiddenThatNeedNotBe) {
  Random random(10);
  for (int i = 0; i < 2'000; ++i) {
    RestoreProblem problem = random_problem(random, 40);
    add_hidden(random, problem, 1 + random.below(3));
    for (RestorableBlock& block : problem.blocks)
      if (block.hidden) block.hidden->charge = block.charge;  // as if it cost nothing
    problem.knows_projecting = false;
    for (const RestoreRule rule : kEveryRule) {
      const RestorePlan plan = plan_restore(problem, rule);
      if (rule == RestoreRule::kHidden) continue;
      for (const RestorableBlock& block : problem.blocks)
        ASSERT_FALSE(as_hidden(plan, block)) << restore_rule_name(rule);
    }
  }
}

// Also where a tier's blocks differ.
TEST(RestorePlan, AutoIsNeverWorseThanANamedPlan) {
  Random random(6);
  for (std::uint64_t i = 0; i < test_rounds(3'000); ++i) {
    RestoreProblem problem = random_problem(random, 200);
    if (random.below(2) == 0) add_hidden(random, problem, 1 + random.below(3));
    if (random.below(2) == 0) {
      for (RestorableBlock& block : problem.blocks) {
        block.load = static_cast<Nanos>(random.below(static_cast<std::uint64_t>(block.load) + 1));
        block.charge = static_cast<Nanos>(random.below(static_cast<std::uint64_t>(block.charge) + 1));
      }
    }
    const Nanos best = plan_restore(problem, RestoreRule::kAuto).times.price;
    for (const RestoreRule rule : kEveryRule) {
      const RestorePlan plan = plan_restore(problem, rule);
      ASSERT_LE(best, plan.times.price) << i << " " << restore_rule_name(rule);
      ASSERT_EQ(plan.rule, rule);
    }
  }
}

// --- places, in models with windows ---

// `loads` of a disk and `compute` at three places, the last first.
std::vector<RestoreProblem> three_places(Tier middle) {
  const auto place = [](Nanos compute, Nanos load, Tier from) {
    RestoreProblem problem{.computed_anyway = compute, .first_reading = compute, .layers = 10};
    if (load > 0) problem.blocks.push_back({.from = from, .load = load});
    return problem;
  };
  return {place(10, 1'000, Tier::kDisk), place(500, 450, middle), place(1'200, 0, Tier::kDevice)};
}

TEST(RestorePlan, APlaceIsChosenByWhatIsLoadedAndComputedThere) {
  const std::vector<RestoreProblem> places = three_places(Tier::kDisk);
  const PlaceChoice best = choose_place(places, RestoreRule::kAuto);
  EXPECT_EQ(best.number, 1u);
  EXPECT_EQ(best.times.ready, 545) << "a layer of the loads, and all that is computed";
  EXPECT_EQ(best.loading_all.ready, 1'001);
  EXPECT_EQ(best.computing_all.ready, 1'200);
  std::vector<RestoreProblem> busy = places;
  for (RestoreProblem& place : busy) place.others = 4;
  EXPECT_EQ(choose_place(busy, RestoreRule::kAuto).number, 0u) << "others lose what is computed";
}

TEST(RestorePlan, NamedPlansTakeTheirPlaces) {
  for (const auto& [rule, place] : std::vector<std::pair<RestoreRule, std::size_t>>{
           {RestoreRule::kKv, 0}, {RestoreRule::kHidden, 0}, {RestoreRule::kRecompute, 2}}) {
    EXPECT_EQ(choose_place(three_places(Tier::kDisk), rule).number, place) << restore_rule_name(rule);
  }
  EXPECT_EQ(choose_place(three_places(Tier::kDisk), RestoreRule::kPensieve).number, 2u);
  EXPECT_EQ(choose_place(three_places(Tier::kHost), RestoreRule::kPensieve).number, 1u);
}

TEST(RestorePlan, NoPlaceIsBetterThanTheBest) {
  Random random(7);
  for (int i = 0; i < 1'000; ++i) {
    std::vector<RestoreProblem> places;
    for (std::uint64_t left = 1 + random.below(6); left > 0; --left)
      places.push_back(random_problem(random, 1 + random.below(4)));
    const PlaceChoice best = choose_place(places, RestoreRule::kAuto);
    for (std::size_t place = 0; place < places.size(); ++place)
      ASSERT_LE(best.times.price, plan_restore(places[place], RestoreRule::kKv).times.price) << place;
    for (const RestoreRule rule : kEveryRule)
      ASSERT_LE(best.times.price, choose_place(places, rule).times.price) << restore_rule_name(rule);
  }
}

TEST(RestorePlan, AbsurdTimesAreCutOff) {
  Random random(8);
  for (int i = 0; i < 2'000; ++i) {
    const auto any = [&] { return static_cast<Nanos>(random.next() >> random.below(64)); };
    RestoreProblem problem = random_problem(random, 64);
    for (RestorableBlock& block : problem.blocks)
      block.compute = any(), block.load = any(), block.charge = any();
    add_hidden(random, problem);
    for (RestorableBlock& block : problem.blocks)
      if (block.hidden) block.hidden = {.load = any(), .charge = any()};
    for (RestoreLink& link : problem.links) link.booked = any(), link.latency = any();
    problem.compute_booked = any(), problem.computed_anyway = any(), problem.first_reading = any();
    problem.others = static_cast<std::uint32_t>(random.next());
    problem.layers = static_cast<std::uint32_t>(random.below(3));
    for (const RestoreRule rule : kEveryRule) {
      const RestorePlan plan = plan_restore(problem, rule);
      ASSERT_GE(plan.times.ready, 0);
      ASSERT_GE(plan.times.compute, 0);
      ASSERT_GE(plan.times.price, plan.times.ready);
    }
  }
}

TEST(RestorePlan, NamesAreRefusedWithTheListOfThem) {
  for (const RestoreRule rule : kEveryRule)
    EXPECT_EQ(find_restore_rule(restore_rule_name(rule)).value(), rule);
  const Status status = find_restore_rule("fastest").status();
  EXPECT_EQ(status.field(), "restore");
  EXPECT_NE(status.message().find("kv, recompute, pensieve"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("'fastest'"), std::string::npos);
}

}  // namespace
}  // namespace loci
