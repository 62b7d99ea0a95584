// SPDX-License-Identifier: Apache-2.0
// The production core on modelled hardware: tests closed forms and identities of whole runs.
#include "loci/sim/world.h"

#include <gtest/gtest.h>

#include <string>

#include "loci/base/folder_testing.h"
#include "loci/engine/log/event_log.h"
#include "loci/policy/admission_order.h"
#include "loci/policy/eviction.h"
#include "loci/sim/report.h"
#include "loci/sim/workload.h"
#include "loci/sim/world_testing.h"

namespace loci::sim {
namespace {

Trace talks(std::uint64_t count, Nanos think = 5 * kNanosPerSecond) {
  Trace trace{.name = "test", .conversations = {}, .notes = {}};
  for (std::uint64_t c = 0; c < count; ++c) {
    Conversation talk;
    for (std::uint64_t t = 0; t < 3; ++t) {
      talk.turns.push_back({.at = t == 0 ? static_cast<Nanos>(c) * kNanosPerSecond : 0,
                            .after = t == 0 ? 0 : think,
                            .pieces = {{c * 10 + t + 1, 300 + static_cast<std::uint32_t>(c * 7 % 90)}},
                            .reply_tokens = 20});
    }
    trace.conversations.push_back(std::move(talk));
  }
  return trace;
}

WorldOptions options_of(std::uint32_t device, std::uint32_t host, std::uint32_t disk) {
  WorldOptions options = small_model_world();
  options.machine.host_load = options.machine.host_save = {1'000, 5'000'000'000};
  options.machine.disk_read = {100'000, 1'000'000'000};
  options.machine.disk_write = {100'000, 500'000'000};
  options.core.groups = {{.block_count = device,
                          .host_blocks = host,
                          .disk_blocks = disk,
                          .block_bytes = options.model.token_bytes() * kBlockTokens}};
  options.core.layers = options.model.layers;
  options.core.context_tokens = 2048;
  options.core.max_running = 8;
  options.core.max_queued = 1000;
  options.core.hole_records = disk;
  options.core.costs = PassModel(options.model, options.machine).curves();
  options.check = true;
  return options;
}

std::uint64_t cached(const WorldReport& report) {
  std::uint64_t sum = 0;
  for (const RequestRecord& record : report.requests) sum += record.from[0] + record.from[1] + record.from[2];
  return sum;
}

std::uint64_t in_blocks(std::uint32_t tokens) { return tokens / kBlockTokens * kBlockTokens; }

TEST(World, AmpleMemoryReusesTheTraces) {
  const WorldReport report = run(talks(12), options_of(2000, 0, 0));
  ASSERT_EQ(report.requests.size(), 36u);
  for (const RequestRecord& record : report.requests) {
    EXPECT_EQ(record.outcome, Outcome::kDone);
    EXPECT_EQ(record.reply_tokens, 20u);
    // All of the history but the last reply's last token, whose state nobody has computed.
    EXPECT_EQ(record.from[0], record.history_tokens == 0 ? 0 : record.history_tokens - 1);
  }
}

// The hashes of a trace say what is shared; with room for all the core finds just that, in whole blocks.
TEST(World, AmpleMemoryReusesWhatHashesShare) {
  Trace trace;
  for (std::uint64_t r = 0; r < 40; ++r) {
    Turn turn{.at = static_cast<Nanos>(r) * 10 * kNanosPerSecond, .appends = false, .reply_tokens = 3};
    for (std::uint64_t i = 0; i < 8; ++i) turn.pieces.push_back({i < r % 7 ? i + 1 : r * 100 + i, 64});
    trace.conversations.push_back({{turn}});
  }
  const WorldReport report = run(trace, options_of(2000, 0, 0));
  std::uint64_t shared = 0;
  for (const RequestRecord& record : report.requests) {
    EXPECT_EQ(in_blocks(record.from[0]), record.history_tokens);
    shared += record.history_tokens;
  }
  EXPECT_GT(shared, 1000u);
}

TEST(World, StatelessIsAllMisses) {
  WorldOptions options = options_of(2000, 0, 0);
  options.stateless = true;
  const Trace trace = talks(12);
  const WorldReport report = run(trace, options);
  EXPECT_EQ(cached(report), 0u);
  // The same as a core that has nothing to find: every turn a conversation of its own content.
  std::uint64_t prompt = 0;
  for (const RequestRecord& record : report.requests) prompt += record.prompt_tokens;
  EXPECT_EQ(report.stats.tokens_computed_total, prompt + report.requests.size() * 19)
      << "the last is not computed";
}

// One request alone: its prompt in chunks of the batch's budget, then a pass for each further token.
TEST(World, ARequestAloneTakesItsPasses) {
  Trace trace;
  trace.conversations.push_back({{{.pieces = {{1, 700}}, .reply_tokens = 5}}});
  const WorldOptions options = options_of(100, 0, 0);
  const WorldReport report = run(trace, options);
  const PassModel model(options.model, options.machine);
  const Nanos first = model.prefill(0, 512) + model.prefill(512, 188);
  EXPECT_EQ(report.requests[0].first_token, first);
  Nanos end = first;
  for (std::uint32_t i = 0; i < 4; ++i) end += model.prefill(700 + i, 1);
  EXPECT_EQ(report.requests[0].ended, end);
  EXPECT_EQ(report.prompt_time, first);
  EXPECT_EQ(report.prompt_work, model.work({0, 512}) + model.work({512, 188}));
  const Nanos weights = model.prefill(0, 1) - model.work({0, 1});
  EXPECT_GT(weights, 0) << "are of the pass, not of the token";
  EXPECT_EQ(report.decode_time, end - first);
}

// A second turn whose state is in host memory: its pass waits for the layers as they arrive.
TEST(World, LoadsOverlapWithComputingLayerByLayer) {
  Trace trace;
  const auto talk = [](Nanos at, std::uint64_t content, Nanos think) {
    return Conversation{{{.at = at, .pieces = {{content, 1200}}, .reply_tokens = 2},
                         {.after = think, .pieces = {{content + 1, 31}}, .reply_tokens = 1}}};
  };
  trace.conversations = {talk(0, 10, 100 * kNanosPerSecond),
                         talk(20 * kNanosPerSecond, 20, 1000 * kNanosPerSecond)};
  WorldOptions options = options_of(50, 1000, 0);
  options.core.max_batch_tokens = 2048;
  options.core.eviction = "lru";
  const WorldReport report = run(trace, options);
  const RequestRecord& second = report.requests[2];
  ASSERT_EQ(second.conversation, 0u);
  ASSERT_GT(second.from[1], 500u);
  const std::uint32_t computed = second.prompt_tokens - second.from[0] - second.from[1];
  const PassModel model(options.model, options.machine);
  const Nanos lasts = model.prefill(second.prompt_tokens - computed, computed);
  const auto loads = static_cast<Nanos>(second.from[1] * options.model.token_bytes() / 5) + 1'000;
  EXPECT_NEAR(static_cast<double>(second.first_token - second.arrived),
              static_cast<double>(std::max(loads / 10 + lasts, loads + lasts / 10)), 2e5)
      << "but for the block of its end, which comes first and whole";
}

TEST(World, EveryPolicyServesAllAndAgainTheSame) {
  const Trace trace = talks(6);
  for (const std::string_view eviction : kEvictionPolicies) {
    for (const std::string_view admission : kAdmissionOrders) {
      WorldOptions options = options_of(90, 60, 100);
      options.core.eviction = eviction;
      options.core.admission = admission;
      const WorldReport first = run(trace, options), again = run(trace, options);
      EXPECT_EQ(first.digest, again.digest);
      EXPECT_EQ(report_json(trace, options, first).dump(), report_json(trace, options, again).dump());
      ASSERT_EQ(first.requests.size(), 18u);
      for (const RequestRecord& record : first.requests) EXPECT_EQ(record.outcome, Outcome::kDone);
    }
  }
}

TEST(World, RequestsAreConservedWhateverBecomesOfThem) {
  Trace trace = talks(10);
  trace.conversations[1].turns[0].cancel_after = 1'000'000;
  trace.conversations[2].turns[1].pieces[0].tokens = 5000;  // fits no context
  trace.conversations[3].turns[0].reply_tokens = 1500;      // past the deadline
  WorldOptions options = options_of(90, 60, 100);
  options.deadline = 4 * kNanosPerSecond;
  const WorldReport report = run(trace, options);
  EXPECT_EQ(report.requests.size(), trace.requests());
  std::array<std::uint32_t, kOutcomes> counts{};
  for (const RequestRecord& record : report.requests) {
    ++counts[static_cast<std::size_t>(record.outcome)];
    EXPECT_NE(record.outcome, Outcome::kWaits);
    EXPECT_LE(record.from[0] + record.from[1] + record.from[2], record.prompt_tokens);
  }
  EXPECT_GE(counts[static_cast<std::size_t>(Outcome::kCancelled)], 1u);
  EXPECT_EQ(counts[static_cast<std::size_t>(Outcome::kTooLong)], 2u);
  EXPECT_GE(counts[static_cast<std::size_t>(Outcome::kDeadline)], 1u);
}

// An agent outgrows the context or the memory, makes its history shorter and goes on: whole prompts do not
// need the one before them.
TEST(World, APromptThatIsTooLongCostsOnlyTheTurnsThatGoOnFromIt) {
  const auto whole = [](std::uint64_t content, std::uint32_t tokens) {
    return Turn{.after = kNanosPerSecond, .appends = false, .pieces = {{content, tokens}}, .reply_tokens = 9};
  };
  Turn appended = whole(6, 40);
  appended.appends = true;
  Trace trace;
  trace.conversations.push_back({{whole(1, 300), whole(2, 3000), appended, whole(3, 500), appended}});
  const auto outcomes = [&](const WorldOptions& options) {
    std::vector<Outcome> out;
    for (const RequestRecord& record : run(trace, options).requests) out.push_back(record.outcome);
    return out;
  };
  using enum Outcome;
  const std::vector<Outcome> expected = {kDone, kTooLong, kTooLong, kDone, kDone};
  EXPECT_EQ(outcomes(options_of(2000, 0, 0)), expected) << "3,000 tokens outgrow the context";
  WorldOptions small = options_of(60, 0, 0);
  small.core.context_tokens = 8192;
  EXPECT_EQ(outcomes(small), expected) << "and a memory of 60 blocks, which the core finds out";
  const WorldReport report = run(trace, small);
  EXPECT_EQ(report.requests[1].prompt_tokens, 3000u);
  EXPECT_EQ(report.requests[2].prompt_tokens, 0u) << "nobody knows";
  EXPECT_GE(report.requests[3].arrived, report.requests[1].ended + kNanosPerSecond);
}

// Whoever left sizes out sees those that were taken.
TEST(World, AReportSaysItsNameAndHowMuchMemoryThereWas) {
  const Trace trace = talks(2);
  Scenario scenario{.name = "my test", .world = options_of(90, 0, 100)};
  scenario.world.core.groups.front().block_bytes = 10'000'000;
  nlohmann::ordered_json json = report_json(trace, scenario.world, run(trace, scenario.world));
  EXPECT_EQ(report_text(json).find("memory for state"), std::string::npos);
  add_scenario(json, scenario);
  EXPECT_EQ(json["name"], "my test");
  EXPECT_EQ(json["memory"]["host"]["tokens"], 0);
  EXPECT_EQ(json["memory"]["disk"]["bytes"], 1'000'000'000);
  const std::string text = report_text(json);
  EXPECT_TRUE(
      text.starts_with("my test\nmemory for state: device 2880 tokens (0.9 GB), disk 3200 tokens (1.0 GB)\n"))
      << text;
}

// The first ten of them; of turns that would have gone on from them nobody knows how long they are.
TEST(World, PromptsThatFitNowhereAreListed) {
  Trace trace = talks(14);
  for (std::uint32_t c = 1; c < 13; ++c) trace.conversations[c].turns[1].pieces[0].tokens = 5000 + c;
  const WorldOptions options = options_of(90, 60, 100);
  const nlohmann::ordered_json json = report_json(trace, options, run(trace, options));
  EXPECT_EQ(json["outcomes"]["too_long"], 24);
  const auto& listed = json["too_long"];
  EXPECT_EQ(listed["prompts"], 12);
  EXPECT_EQ(listed["turns_that_went_on_from_them"], 12);
  ASSERT_EQ(listed["first"].size(), 10u);
  EXPECT_EQ(listed["first"][0]["conversation"], 1);
  EXPECT_EQ(listed["first"][0]["turn"], 1);
  // The first turn, its reply and the new tokens.
  EXPECT_EQ(listed["first"][0]["prompt_tokens"],
            trace.conversations[1].turns[0].pieces[0].tokens + 20 + 5001);
  const std::string text = report_text(json);
  EXPECT_NE(
      text.find("12 prompts fit no memory or context, so 12 turns that went on from them were not asked:\n"
                "  conversation 1, turn 1: 5328 tokens\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("  and 2 more\n"), std::string::npos) << text;
  const Trace short_ones = talks(3);
  EXPECT_FALSE(report_json(short_ones, options, run(short_ones, options)).contains("too_long"));
}

// Copies of a conversation find what the first one said, which is more than their own history.
TEST(World, NoMoreIsCachedThanCanBeReused) {
  const Trace trace =
      make_workload({.kind = "documents", .conversations = 12, .rate = 0.2, .tasks = 3, .copies = 3}).value();
  const WorldOptions options = options_of(4000, 0, 0);
  const WorldReport report = run(trace, options);
  std::uint64_t first_turns = 0;
  for (const RequestRecord& record : report.requests) {
    EXPECT_LE(in_blocks(record.from[0]), record.history_tokens) << record.conversation << ", " << record.turn;
    if (record.turn == 0) first_turns += record.history_tokens;
  }
  // 8 of them are copies of 1,088 tokens, of which the last is computed in any case.
  EXPECT_EQ(first_turns, 8u * (1088 - kBlockTokens));
  const nlohmann::ordered_json json = report_json(trace, options, report);
  EXPECT_LE(json["tokens"]["share_cached"].get<double>(),
            json["tokens"]["share_reusable"].get<double>() + 0.01);
}

// Requests that overlap: the second one finds what the first, which goes on, has computed.
TEST(World, WhatWasFoundCouldBeReused) {
  Trace trace;
  for (std::uint64_t r = 0; r < 3; ++r) {
    Turn turn{.at = static_cast<Nanos>(r) * kNanosPerSecond, .appends = false, .reply_tokens = 800};
    turn.pieces = {{5, 640}, {100 + r, 64}};
    trace.conversations.push_back({{turn}});
  }
  const WorldOptions options = options_of(2000, 0, 0);
  const WorldReport report = run(trace, options);
  ASSERT_GT(report.requests[0].ended, report.requests[2].arrived) << "they overlap";
  EXPECT_EQ(report.requests[2].from[0], 640u);
  EXPECT_EQ(report.requests[2].history_tokens, 0u) << "nobody had ended when it arrived";
  const nlohmann::ordered_json json = report_json(trace, options, report);
  EXPECT_EQ(json["tokens"]["share_reusable"], json["tokens"]["share_cached"]);
  EXPECT_EQ(json["tokens"]["history"], 1280);
  EXPECT_EQ(json["hit_rate"]["of_returning_turns"], 1);
}

TEST(World, TruncationKeepsStateAndCutsLoseIt) {
  Trace trace;
  for (std::uint64_t c = 0; c < 3; ++c) {
    Conversation talk;
    for (std::uint64_t t = 0; t < 12; ++t) {
      talk.turns.push_back({.at = t == 0 ? static_cast<Nanos>(c) * kNanosPerSecond : 0,
                            .after = kNanosPerSecond,
                            .pieces = {{c * 100 + t, 100}},
                            .reply_tokens = 50});
    }
    trace.conversations.push_back(talk);
  }
  WorldOptions options = options_of(400, 400, 0);
  options.core.context_tokens = 512;
  options.overflow = Overflow::kTruncate;
  const WorldReport kept = run(trace, options);
  options.overflow = Overflow::kCut;
  const WorldReport cut = run(trace, options);
  options.overflow = Overflow::kStop;
  const WorldReport stopped = run(trace, options);
  ASSERT_EQ(kept.requests.size(), cut.requests.size());
  EXPECT_GT(cached(kept), cached(cut));
  for (const RequestRecord& record : kept.requests) EXPECT_EQ(record.outcome, Outcome::kDone);
  EXPECT_EQ(stopped.requests.size(), trace.requests());
  EXPECT_EQ(stopped.requests.back().outcome, Outcome::kTooLong);
}

// A client asks for the same in each turn, however long the reply then gets. If the cuts followed the
// replies, each change would begin a lineage that nobody has computed.
TEST(World, CutsStayWhereTheyAreWhateverRepliesBecome) {
  Trace trace;
  Conversation talk;
  for (std::uint64_t t = 0; t < 24; ++t) {
    talk.turns.push_back(
        {.after = kNanosPerSecond, .pieces = {{t + 1, 30}}, .reply_tokens = t % 3 == 0 ? 300u : 20u});
  }
  trace.conversations.push_back(talk);
  WorldOptions options = options_of(400, 0, 0);
  options.core.context_tokens = 1024;
  options.overflow = Overflow::kTruncate;
  const WorldReport report = run(trace, options);
  ASSERT_EQ(report.requests.size(), 24u);
  std::uint32_t cuts = 0;
  for (std::size_t t = 1; t < report.requests.size(); ++t) {
    const RequestRecord& record = report.requests[t];
    cuts += record.prompt_tokens < report.requests[t - 1].prompt_tokens ? 1 : 0;
    EXPECT_GE(record.from[0] + 2 * kBlockTokens, record.history_tokens) << "turn " << t;
  }
  EXPECT_GT(cuts, 3u);
}

// Where only the time is counted in which conversations begin, its end is no quiet time.
TEST(World, CountsOnlyUntilTheLastConversationBeginsIfItIsToldTo) {
  const Trace trace = talks(12);
  WorldOptions options = options_of(2000, 0, 0);
  options.warm_up = 4;
  options.steady = true;
  const WorldReport report = run(trace, options);
  EXPECT_EQ(report.counted_until, 11 * kNanosPerSecond);
  std::uint64_t counted = 0, done = 0;
  const Nanos first = report.requests[4].arrived;
  for (std::size_t i = 0; i < report.requests.size(); ++i) {
    const RequestRecord& record = report.requests[i];
    counted += i >= 4 && record.arrived <= report.counted_until ? 1 : 0;
    done += record.ended >= first && record.ended <= report.counted_until ? 1 : 0;
  }
  ASSERT_LT(counted, 32u);
  const auto json = report_json(trace, options, report);
  EXPECT_EQ(json["counted_requests"], counted);
  const double lasted = static_cast<double>(report.counted_until - first) * 1e-9;
  EXPECT_DOUBLE_EQ(json["throughput"]["requests_per_s"].get<double>(), static_cast<double>(done) / lasted);
  options.steady = false;
  const WorldReport whole = run(trace, options);
  EXPECT_EQ(whole.digest, report.digest) << "what is counted changes nothing else";
  EXPECT_GT(whole.decode_time, report.decode_time);
  EXPECT_EQ(report_json(trace, options, whole)["counted_requests"], 32u);
}

TEST(World, WritesALogThatReplays) {
  const TestFolder folder;
  const std::string path = folder.file("events");
  WorldOptions options = options_of(90, 60, 100);
  options.event_log = path;
  const WorldReport report = run(talks(6), options);
  const auto replayed = replay(path);
  ASSERT_TRUE(replayed.ok()) << replayed.status().message();
  EXPECT_GT(replayed->compared, report.passes);
  EXPECT_EQ(replayed->steps, replayed->compared);
}

// More conversations than host memory holds wait for one place in the batch: those in the window are brought
// from disk before their turn.
TEST(World, LooksAsFarAheadAsItIsTold) {
  Trace trace = talks(24, 30 * kNanosPerSecond);
  for (Conversation& talk : trace.conversations) talk.turns[1].at = 100 * kNanosPerSecond;
  WorldOptions options = options_of(60, 120, 3000);
  options.core.max_running = 1;
  options.core.eviction = "lookahead";
  options.core.restore = "pensieve";  // the disk is not worth waiting for
  std::uint64_t before = 0;
  for (const std::uint32_t requests : {0u, 4u, 1000u}) {
    options.core.lookahead_requests = requests;
    const WorldReport report = run(trace, options);
    EXPECT_EQ(report.bytes_moved[static_cast<std::size_t>(CoreLink::kPrefetch)] > 0, requests > 0);
    EXPECT_EQ(report.bytes_moved[static_cast<std::size_t>(CoreLink::kDiskLoad)], 0u);
    if (requests == 0) {
      before = cached(report);
    } else {
      EXPECT_GT(cached(report), before) << requests;
    }
  }
}

// The core looks for state that is too old as long as it lives; a run ends with its requests.
TEST(World, EndsThoughStateGrowsOld) {
  WorldOptions options = options_of(90, 60, 100);
  options.core.state_ttl = 2 * kNanosPerSecond;
  const WorldReport report = run(talks(6), options);
  EXPECT_EQ(report.requests.size(), 18u);
  EXPECT_EQ(cached(report), 0u) << "turns come after five seconds";
  EXPECT_LT(report.duration, 60 * kNanosPerSecond);
}

// What the core believes changes what it does, not what things cost.
TEST(World, BelievedCostsAreNotTheRealOnes) {
  WorldOptions options = options_of(90, 400, 0);
  const WorldReport right = run(talks(6), options);
  options.core.costs.host_load.bytes_per_second = 1'000;  // never worth it
  const WorldReport wrong = run(talks(6), options);
  EXPECT_GT(right.bytes_moved[0], 0u);
  EXPECT_EQ(wrong.bytes_moved[0], 0u);
}

}  // namespace
}  // namespace loci::sim
