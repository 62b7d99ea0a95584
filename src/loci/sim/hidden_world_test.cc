// SPDX-License-Identifier: Apache-2.0
// Hidden states on modelled hardware: closed forms of restoring and saving, what the core chooses, and that
// whatever happens to a copy costs time alone.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "loci/base/folder_testing.h"
#include "loci/engine/log/event_log.h"
#include "loci/policy/hidden_share.h"
#include "loci/sim/log_passes.h"
#include "loci/sim/report.h"
#include "loci/sim/scenario.h"
#include "loci/sim/world.h"
#include "loci/sim/world_testing.h"

namespace loci::sim {
namespace {

constexpr std::uint32_t kContext = 1280;  // tokens, whole blocks

// A disk of 1 GB/s, and nothing else below the device, which keeps nothing. A token has 20,480 bytes of
// hidden states, and twice that of keys and values.
WorldOptions hidden_world(std::uint32_t percent) {
  WorldOptions options = small_model_world();
  options.model.state_width = options.model.width;
  options.machine.host_save = {1'000, 5'000'000'000};
  options.machine.disk_read = {100'000, 1'000'000'000};
  options.machine.disk_write = {100'000, 500'000'000};
  options.machine.projection_flops = 4e12;
  const std::uint64_t kv = options.model.token_bytes() * kBlockTokens;
  options.core.groups = {{.block_count = 300, .disk_blocks = 1000, .block_bytes = kv}};
  options.core.hidden = {.disk_blocks = 1000,
                         .block_bytes = options.model.hidden_token_bytes() * kBlockTokens,
                         .share = {.percent = percent}};
  options.core.layers = options.model.layers;
  options.core.context_tokens = 4096;
  options.core.max_batch_tokens = 2048;
  options.core.max_running = 8;
  options.core.max_queued = 1000;
  options.core.hole_records = 1000;
  options.core.restore = "hidden";
  options.core.costs = PassModel(options.model, options.machine).curves();
  options.device_keeps = false;
  options.check = true;
  return options;
}

// A conversation whose second turn finds the state of `kContext` tokens on the disk, and adds 32.
Trace returning() {
  Trace trace;
  trace.conversations.push_back({{{.pieces = {{1, kContext - 1}}, .reply_tokens = 2},
                                  {.after = 100 * kNanosPerSecond, .pieces = {{2, 31}}, .reply_tokens = 1}}});
  return trace;
}

WorldReport run_hidden(const Trace& trace, const WorldOptions& options) {
  Result<WorldReport> report = run_world(trace, options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return std::move(report).value();
}

// What the second turn takes if its loads begin with its pass.
double expected_ttft(const WorldOptions& options, std::uint64_t hidden_blocks, std::uint64_t kv_blocks) {
  const PassModel model(options.model, options.machine);
  const double bytes = static_cast<double>(hidden_blocks * options.core.hidden.block_bytes +
                                           kv_blocks * options.core.groups.front().block_bytes);
  const double loads = static_cast<double>(options.machine.disk_read.latency) +
                       bytes * 1e9 / static_cast<double>(options.machine.disk_read.bytes_per_second);
  const double computes =
      static_cast<double>(model.prefill(kContext, 32)) +
      static_cast<double>(model.projecting(kBlockTokens)) * static_cast<double>(hidden_blocks);
  const double layers = options.model.layers;
  return std::max(loads / layers + computes, loads + computes / layers);
}

class HiddenWorldRestores : public testing::TestWithParam<Projecting> {};

TEST_P(HiddenWorldRestores, TakesTheLongerOfLoadingAndProjecting) {
  for (const double flops : {4e11, 4e12, 4e13}) {
    for (const std::uint64_t rate :
         std::initializer_list<std::uint64_t>{200'000'000, 1'000'000'000, 10'000'000'000}) {
      for (const std::uint32_t percent : {0u, 50u, 100u}) {
        WorldOptions options = hidden_world(percent);
        options.machine.projecting = GetParam();
        options.machine.projection_flops = flops;
        options.machine.disk_read.bytes_per_second = rate;
        options.core.costs = PassModel(options.model, options.machine).curves();
        const WorldReport report = run_hidden(returning(), options);
        const RequestRecord& second = report.requests[1];
        SCOPED_TRACE(testing::Message() << flops << " " << rate << " " << percent);
        ASSERT_EQ(second.from[2], kContext);
        EXPECT_EQ(second.hidden, kContext * percent / 100);
        const std::uint64_t hidden = second.hidden / kBlockTokens;
        EXPECT_NEAR(static_cast<double>(second.first_token - second.arrived),
                    expected_ttft(options, hidden, kContext / kBlockTokens - hidden), 10);
        EXPECT_EQ(report.hidden_loaded, hidden);
        const Nanos projecting = PassModel(options.model, options.machine).projecting(kBlockTokens);
        EXPECT_NEAR(static_cast<double>(report.projecting_time),
                    static_cast<double>(projecting * static_cast<Nanos>(hidden)), 10);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Both, HiddenWorldRestores,
                         testing::Values(Projecting::kInPasses, Projecting::kOnArrival));

// Beside a reply that is being written, which keeps the processor busy: on arrival the projecting is done
// when the last layer has come; in the pass that reads it is not.
TEST(HiddenWorld, ProjectingOnArrivalLengthensThePassesOfOthers) {
  Trace trace = returning();
  trace.conversations.push_back({{{.at = 99 * kNanosPerSecond, .pieces = {{7, 100}}, .reply_tokens = 400}}});
  WorldOptions options = hidden_world(100);
  options.machine.disk_read.bytes_per_second = 200'000'000;
  options.core.costs = PassModel(options.model, options.machine).curves();
  const auto ttft = [](const WorldReport& report) {
    for (const RequestRecord& record : report.requests) {
      if (record.turn == 1) return record.first_token - record.arrived;
    }
    return Nanos{0};
  };
  const WorldReport in_passes = run_hidden(trace, options);
  options.machine.projecting = Projecting::kOnArrival;
  const WorldReport on_arrival = run_hidden(trace, options);
  EXPECT_EQ(in_passes.hidden_loaded, kContext / kBlockTokens);
  EXPECT_EQ(on_arrival.hidden_loaded, kContext / kBlockTokens);
  const Nanos projecting = PassModel(options.model, options.machine).projecting(kContext);
  EXPECT_NEAR(static_cast<double>(on_arrival.projecting_time), static_cast<double>(projecting), 100);
  EXPECT_NEAR(static_cast<double>(in_passes.projecting_time), static_cast<double>(projecting), 100);
  EXPECT_LT(ttft(on_arrival), ttft(in_passes) - projecting / 2);
  EXPECT_NEAR(static_cast<double>(on_arrival.duration), static_cast<double>(in_passes.duration), 1e8)
      << "the processor's work is the same";
}

// What comes while its request waits for a place in the batch.
TEST(HiddenWorld, WhatCameBeforeIsProjectedByThePassThatReadsIt) {
  Trace trace = returning();
  trace.conversations.push_back({{{.at = 100 * kNanosPerSecond, .pieces = {{7, 100}}, .reply_tokens = 400}}});
  WorldOptions options = hidden_world(100);
  options.core.max_running = 1;
  const WorldReport report = run_hidden(trace, options);
  const PassModel model(options.model, options.machine);
  const RequestRecord& second = report.requests.back();
  ASSERT_EQ(second.turn, 1u);
  ASSERT_EQ(second.hidden, kContext);
  EXPECT_GT(second.admitted, second.arrived + 100 * kNanosPerMilli) << "all has come when it begins";
  const auto blocks = static_cast<Nanos>(kContext / kBlockTokens);
  EXPECT_EQ(second.first_token - second.admitted,
            model.prefill(kContext, 32) + blocks * model.projecting(kBlockTokens));
}

// Its log says what was projected, and how long that took.
TEST(HiddenWorld, ItsLogHasWhatPassesProjected) {
  const TestFolder folder;
  WorldOptions options = hidden_world(100);
  options.event_log = folder.file("events");
  run_hidden(returning(), options);
  const PassModel model(options.model, options.machine);
  const Result<LogPasses> found = passes_of_log(options.event_log, model);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->projecting.passes, 1u);
  EXPECT_EQ(found->projecting.took, model.projecting(kBlockTokens) * kContext / kBlockTokens);
  EXPECT_EQ(found->projecting.took, found->projecting.modelled);
}

// HCache §4.1.2 where projecting takes less than loading: leading blocks are computed meanwhile.
TEST(HiddenWorld, LeadingBlocksAreComputedBySHCachesClosedForm) {
  WorldOptions options = hidden_world(100);
  options.core.restore = "hcache";
  options.machine.disk_read.bytes_per_second = 100'000'000;
  options.machine.projection_flops = 4e13;
  options.core.costs = PassModel(options.model, options.machine).curves();
  const CostModel costs(options.core.costs);
  const auto blocks = static_cast<Nanos>(kContext / kBlockTokens);
  const Nanos load = costs.load(Tier::kDisk, options.core.hidden.block_bytes) - costs.load(Tier::kDisk, 0);
  const Nanos more = blocks * (load - costs.project_block());
  ASSERT_GT(more, 0);
  const Nanos compute = costs.compute(0, kContext);
  const Nanos hidden = (compute * blocks + compute + more - 1) / (compute + more);
  const WorldReport report = run_hidden(returning(), options);
  EXPECT_LT(hidden, blocks);
  EXPECT_EQ(report.requests[1].from[2], hidden * kBlockTokens);
  EXPECT_EQ(report.requests[1].hidden, report.requests[1].from[2]);
  const double alone = expected_ttft(options, static_cast<std::uint64_t>(blocks), 0);
  EXPECT_LT(static_cast<double>(report.requests[1].first_token - report.requests[1].arrived), 0.9 * alone);
}

// What projecting costs and what the core believes are two things.
TEST(HiddenWorld, BelievedProjectingIsNotTheRealOne) {
  WorldOptions options = hidden_world(100);
  options.core.restore = "auto";
  const WorldReport right = run_hidden(returning(), options);
  options.core.costs.projection *= 1000;
  const WorldReport wrong = run_hidden(returning(), options);
  EXPECT_GT(right.requests[1].from[2], 0u);
  EXPECT_LT(wrong.requests[1].from[2], right.requests[1].from[2]) << "it would rather compute";
  EXPECT_GT(wrong.requests[1].first_token - wrong.requests[1].arrived,
            right.requests[1].first_token - right.requests[1].arrived);
}

TEST(HiddenWorld, ADeviceThatKeepsNothingFindsAllOnTheDisk) {
  WorldOptions options = hidden_world(100);
  EXPECT_EQ(run_hidden(returning(), options).requests[1].from[0], 0u);
  options.device_keeps = true;
  EXPECT_EQ(run_hidden(returning(), options).requests[1].from[0], kContext);
}

// HCache §6.3.3: saving in two stages costs nothing; directly, a pass waits for its writes.
TEST(HiddenWorld, DirectSavesMakePassesLonger) {
  Trace trace;
  for (std::uint64_t c = 0; c < 4; ++c)
    trace.conversations.push_back({{{.pieces = {{c + 1, 128}}, .reply_tokens = 21}}});
  const auto decodes = [&](const WorldOptions& options) {
    const WorldReport report = run_hidden(trace, options);
    EXPECT_EQ(report.hidden_not_captured, 0u);
    EXPECT_GE(report.hidden_saved, 16u);
    const RequestRecord& last = report.requests.back();
    return (last.ended - last.first_token) / 20;
  };
  WorldOptions options = hidden_world(100);
  const Nanos two_stages = decodes(options);
  options.core.hidden = {};
  WorldOptions none = options;
  const RequestRecord last = run_hidden(trace, none).requests.back();
  EXPECT_EQ(two_stages, (last.ended - last.first_token) / 20) << "as without";
  options = hidden_world(100);
  options.machine.hidden_saving = HiddenSaving::kDirect;
  options.machine.small_write = 1'000;
  EXPECT_EQ(decodes(options), two_stages) << "four rows in ten layers, 50 us in all";
  options.machine.small_write = 300'000;
  const PassModel model(options.model, options.machine);
  EXPECT_GT(model.capturing(4), two_stages);
  const auto waits = static_cast<double>(model.capturing(4));
  EXPECT_NEAR(static_cast<double>(decodes(options)), waits, 0.02 * waits) << "but for passes of fewer rows";
}

TEST(HiddenWorld, ADamagedOrLateCopyCostsTimeAlone) {
  Trace trace;
  for (std::uint64_t c = 0; c < 6; ++c) {
    Conversation talk;
    for (std::uint64_t t = 0; t < 5; ++t) {
      talk.turns.push_back({.at = t == 0 ? static_cast<Nanos>(c) * kNanosPerSecond : 0,
                            .after = 3 * kNanosPerSecond,
                            .pieces = {{c * 10 + t, 300}},
                            .reply_tokens = 30});
    }
    trace.conversations.push_back(talk);
  }
  WorldOptions options = hidden_world(80);
  const WorldReport well = run_hidden(trace, options);
  for (const auto& [slow, fails] : {std::pair{1.0, 0.7}, {50.0, 0.0}, {20.0, 0.5}}) {
    options.faults = {
        .seed = 3, .well = 500 * kNanosPerMilli, .ill = 500 * kNanosPerMilli, .slow = slow, .fails = fails};
    const WorldReport ill = run_hidden(trace, options);
    EXPECT_GT(fails > 0 ? ill.failed_moves : 1, 0u);
    ASSERT_EQ(ill.requests.size(), well.requests.size());
    // (Requests are in the order of arrival.)
    const auto replies = [](const WorldReport& report) {
      std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::uint32_t, std::uint32_t>> out;
      for (const RequestRecord& record : report.requests) {
        EXPECT_EQ(record.outcome, Outcome::kDone);
        out[{record.conversation, record.turn}] = {record.prompt_tokens, record.reply_tokens};
      }
      return out;
    };
    EXPECT_EQ(replies(ill), replies(well));
    EXPECT_GT(ill.duration, well.duration);
    EXPECT_GT(well.hidden_loaded, 0u);
  }
}

TEST(HiddenWorld, WritesALogThatReplays) {
  const TestFolder folder;
  const std::string path = folder.file("events");
  WorldOptions options = hidden_world(60);
  options.event_log = path;
  const WorldReport report = run_hidden(returning(), options);
  const auto replayed = replay(path);
  ASSERT_TRUE(replayed.ok()) << replayed.status().message();
  EXPECT_GT(replayed->compared, report.passes);
  EXPECT_EQ(replayed->steps, replayed->compared);
}

// --- scenarios ---

Result<Scenario> parsed_hidden(const std::string& more) {
  const std::string text = R"({"model": "llama2-7b", "machine": "a100-40g",
      "efficiency": {"projection": 0.6314, "products": 0.6314},
      "links": {"disk_read_gb_s": 27.6}, "memory": {"device_tokens": 48000, "disk_gb": 1000}, )" +
                           more + "}";
  return parse_scenario(parse_scenario_text(text, "s.json").value(), "s.json");
}

// HCache's table 3: 31 of 32 layers of 7B as hidden states, with four disks.
TEST(HiddenScenario, ChoosesThePapersShare) {
  const Result<Scenario> scenario = parsed_hidden(R"("engine": {"hidden": "auto"})");
  ASSERT_TRUE(scenario.ok()) << scenario.status().message();
  const CoreConfig& core = scenario->world.core;
  EXPECT_EQ(core.hidden.block_bytes * 2, core.groups.front().block_bytes);
  EXPECT_GE(core.hidden.share.percent, 90u);
  EXPECT_LE(core.hidden.share.percent, 97u);
  EXPECT_EQ(core.hidden.share,
            hidden_share(CostModel(core.costs), core.groups.front().block_bytes, core.hidden.block_bytes));
  const auto bytes = [](std::uint64_t blocks, std::uint64_t each) {
    return static_cast<double>(blocks * each);
  };
  EXPECT_NEAR(bytes(core.hidden.disk_blocks, core.hidden.block_bytes), 1e12, 1e8) << "all as hidden states";
  EXPECT_NEAR(bytes(core.groups.front().disk_blocks, core.groups.front().block_bytes), 1e12, 1e8)
      << "or none";
}

TEST(HiddenScenario, BelievesWhatItIsTold) {
  const Result<Scenario> slow =
      parsed_hidden(R"("engine": {"hidden": "auto"}, "belief": {"projection": 20})");
  EXPECT_EQ(slow->world.core.hidden.disk_blocks, 0u) << "it would not pay";
  const Result<Scenario> on = parsed_hidden(R"("engine": {"hidden": "on"}, "belief": {"projection": 20})");
  EXPECT_EQ(on->world.core.hidden.share, (HiddenShare{.percent = 100}));
  const PassModel real(on->world.model, on->world.machine);
  EXPECT_EQ(on->world.core.costs.projection, real.projecting(1) * 20);
}

TEST(HiddenScenario, RefusesWhatAServerDoes) {
  const auto message = [](const std::string& more) { return parsed_hidden(more).status().message(); };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(message(R"("engine": {"hidden": "on", "save": "ahead"})"), "engine.hidden");
  has(message(R"("engine": {"hidden": "yes"})"), "engine.hidden: expected one of off, auto, on");
  has(message(R"("engine": {"hidden": "on", "baseline": "attentionstore"})"), "engine.hidden");
  const Result<Scenario> grouped =
      parse_scenario(parse_scenario_text(R"({"model": "llama2-70b", "machine": "a100-80g", "processors": 4,
                              "memory": {"disk_gb": 100}, "engine": {"hidden": "on"}})",
                                         "s.json")
                         .value(),
                     "s.json");
  has(grouped.status().message(), "not smaller than its keys and values");
}

}  // namespace
}  // namespace loci::sim
