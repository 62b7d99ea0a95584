// SPDX-License-Identifier: Apache-2.0
// Several instances behind a front: tests closed forms of deaths and of peers' reads, and that a front alone
// changes nothing.
#include <gtest/gtest.h>

#include <algorithm>

#include "loci/sim/world.h"
#include "loci/sim/world_testing.h"

namespace loci::sim {
namespace {

constexpr Nanos kFar = 1'000'000 * kNanosPerSecond;

WorldOptions options_of(std::uint32_t instances, RoutingPolicy policy) {
  WorldOptions options = small_model_world();
  options.core.groups = {{.block_count = 2000, .block_bytes = options.model.token_bytes() * kBlockTokens}};
  options.core.layers = options.model.layers;
  options.core.context_tokens = 4096;
  options.core.max_batch_tokens = 4096;
  options.core.max_running = 8;
  options.core.max_queued = 1000;
  options.core.costs = PassModel(options.model, options.machine).curves();
  options.check = true;
  options.cluster.instances = instances;
  options.cluster.policy = policy;
  return options;
}

Trace talks(std::uint64_t count, std::uint64_t turns) {
  Trace trace{.name = "test", .conversations = {}, .notes = {}};
  for (std::uint64_t c = 0; c < count; ++c) {
    Conversation talk;
    for (std::uint64_t t = 0; t < turns; ++t) {
      talk.turns.push_back({.at = t == 0 ? static_cast<Nanos>(c) * kNanosPerSecond / 3 : 0,
                            .after = t == 0 ? 0 : 5 * kNanosPerSecond,
                            .pieces = {{c * 10 + t + 1, 300 + static_cast<std::uint32_t>(c * 7 % 90)}},
                            .reply_tokens = 20});
    }
    trace.conversations.push_back(std::move(talk));
  }
  return trace;
}

TEST(Cluster, OneInstanceBehindAFrontIsThatInstance) {
  const Trace trace = talks(12, 3);
  for (const RoutingPolicy policy : {RoutingPolicy::kFirstToken, RoutingPolicy::kPromptTree,
                                     RoutingPolicy::kSession, RoutingPolicy::kLeastLoad}) {
    const WorldReport alone = run(trace, options_of(0, policy)), behind = run(trace, options_of(1, policy));
    EXPECT_EQ(alone.digest, behind.digest);
    EXPECT_EQ(behind.cluster.moved + behind.cluster.lost + behind.cluster.peer_asks, 0u);
  }
}

// Conversations stay where their state is, if the policy knows it, and all of it is found as on one server.
TEST(Cluster, PoliciesThatKnowKeepConversationsWhereTheyAre) {
  const Trace trace = talks(24, 4);
  const auto found = [&](const WorldOptions& options) {
    std::uint64_t sum = 0;
    for (const RequestRecord& record : run(trace, options).requests) sum += record.from[0];
    return sum;
  };
  const std::uint64_t alone = found(options_of(0, RoutingPolicy::kFirstToken));
  const auto found_by = [&](RoutingPolicy policy) {
    WorldOptions options = options_of(4, policy);
    options.cluster.peers = false;
    return found(options);
  };
  EXPECT_EQ(found_by(RoutingPolicy::kSession), alone);
  // (It moves a conversation where the queue takes longer than computing. Prompts of 300 tokens are computed
  // soon, and running replies are nearly no queue, so new conversations meet others' prompts more often than
  // in `session`.)
  EXPECT_GT(found_by(RoutingPolicy::kFirstToken), alone * 9 / 10);
  EXPECT_LT(found_by(RoutingPolicy::kLeastLoad), alone);
}

// The second turn goes to the other instance, since the first one is busy with a long reply. It asks (one way
// there, one way back), reads (one way there), and the blocks come one after the other, the last one a way
// later; they take less time than computing them.
TEST(Cluster, StateComesFromAPeerAtTheNetworksRate) {
  Trace trace;
  trace.conversations.push_back({{{.pieces = {{1, 1600}}, .reply_tokens = 2},
                                  {.after = 20 * kNanosPerSecond, .pieces = {{2, 31}}, .reply_tokens = 1}}});
  // A request with as many tokens that come one after the other at the first turn's instance.
  trace.conversations.push_back({{{.at = 19 * kNanosPerSecond, .pieces = {{3, 10}}, .reply_tokens = 1'000}}});
  WorldOptions options = options_of(2, RoutingPolicy::kLeastLoad);
  options.cluster.network = {1 * kNanosPerMilli, 4'000'000'000};
  const WorldReport report = run(trace, options);
  ASSERT_EQ(report.requests.size(), 3u);
  const RequestRecord& second = report.requests[2];
  ASSERT_EQ(second.from[0], 0u) << "it is elsewhere";
  EXPECT_EQ(second.from[3], 1600u);
  EXPECT_EQ(report.cluster.peer_blocks, 50u);
  EXPECT_EQ(report.cluster.peer_bytes_got, 1600 * options.model.token_bytes());
  EXPECT_EQ(report.cluster.peer_bytes_given, report.cluster.peer_bytes_got);
  const double bytes = 1600.0 * static_cast<double>(options.model.token_bytes());
  const double least = 4e6 + bytes / 4;  // nanoseconds
  const auto took = static_cast<double>(second.first_token - second.arrived);
  const PassModel model(options.model, options.machine);
  EXPECT_GE(took, least);
  EXPECT_LE(took, least + static_cast<double>(model.prefill(1600, 33)) + 2e6);
}

// A request alone, whose instance dies at a random time: the other instance makes all of the reply again, and
// the client waits for as long as that takes up to the token that it lacks.
TEST(Cluster, ADeathCostsTheTimeOfTheReplySoFar) {
  Trace trace;
  trace.conversations.push_back({{{.pieces = {{1, 500}}, .reply_tokens = 200}}});
  WorldOptions options = options_of(2, RoutingPolicy::kFirstToken);
  options.cluster.peers = false;  // nobody is asked
  const WorldReport whole = run(trace, options);
  const Nanos lasts = whole.requests[0].ended;
  const PassModel model(options.model, options.machine);
  std::uint32_t seen = 0;
  for (std::uint64_t seed = 1; seed < 60; ++seed) {
    options.faults = {.seed = seed, .restarts = lasts, .away = kFar};
    const WorldReport report = run(trace, options);
    const RequestRecord& record = report.requests[0];
    if (record.moved != 1 || record.outcome != Outcome::kDone) continue;
    ++seen;
    const Nanos died = record.ended - lasts;
    EXPECT_EQ(record.reply_tokens, 200u);
    // So many tokens had come, after the pass of the prompt and one for each further one.
    std::uint64_t told = 0;
    Nanos until = model.prefill(0, 500);
    for (; until <= died; ++told) until += model.prefill(500 + static_cast<std::uint32_t>(told), 1);
    EXPECT_EQ(report.cluster.tokens_again, told);
    EXPECT_EQ(report.sampled, 200 + told);
    EXPECT_EQ(record.first_token, told > 0 ? model.prefill(0, 500) : died + model.prefill(0, 500));
    EXPECT_EQ(record.pause, until) << "the next token comes so long after the death as after an arrival";
  }
  EXPECT_GT(seen, 5u);
}

TEST(Cluster, FailsARequestThatTwoInstancesDiedWith) {
  Trace trace;
  trace.conversations.push_back({{{.pieces = {{1, 500}}, .reply_tokens = 400}}});
  WorldOptions options = options_of(4, RoutingPolicy::kFirstToken);
  std::uint32_t failed = 0;
  for (std::uint64_t seed = 1; seed < 30; ++seed) {
    options.faults = {.seed = seed, .restarts = 300 * kNanosPerMilli, .away = kFar};
    const WorldReport report = run(trace, options);
    const RequestRecord& record = report.requests[0];
    EXPECT_LE(record.moved, 1u);
    if (record.outcome == Outcome::kDone) continue;
    EXPECT_EQ(record.outcome, Outcome::kFailed);
    EXPECT_EQ(report.cluster.lost, 1u);
    ++failed;
  }
  EXPECT_GT(failed, 0u);
}

// Instances 0 to `prefills` - 1 compute prompts, the others write.
WorldOptions options_of_roles(std::uint32_t prefills, std::uint32_t decodes) {
  WorldOptions options = options_of(prefills + decodes, RoutingPolicy::kFirstToken);
  options.cluster.prefills = prefills;
  options.cluster.handover = Handover::kAlways;
  options.cluster.network = {1 * kNanosPerMilli, 4'000'000'000};
  return options;
}

// One way to the prefill member, the prompt's pass, one way back; then it is read as from any peer.
TEST(Cluster, APromptIsComputedAtOneInstanceAndItsReplyWrittenAtAnother) {
  Trace trace;
  trace.conversations.push_back({{{.pieces = {{1, 1600}}, .reply_tokens = 20},
                                  {.after = 5 * kNanosPerSecond, .pieces = {{2, 640}}, .reply_tokens = 20}}});
  const WorldOptions options = options_of_roles(1, 1);
  const WorldReport report = run(trace, options);
  ASSERT_EQ(report.requests.size(), 2u);
  EXPECT_EQ(report.cluster.prefilled, 2u);
  EXPECT_EQ(report.cluster.prefills_failed, 0u);
  const RequestRecord& first = report.requests[0];
  EXPECT_EQ(first.prefilled, 1600u);
  EXPECT_EQ(first.from[0] + first.from[3], 0u) << "nothing was there before";
  const PassModel model(options.model, options.machine);
  const double bytes = 1600.0 * static_cast<double>(options.model.token_bytes());
  const double least = 2e6 + static_cast<double>(model.prefill(0, 1600)) + 4e6 + bytes / 4;
  const auto took = static_cast<double>(first.first_token - first.arrived);
  EXPECT_GE(took, least);
  EXPECT_LE(took, least + static_cast<double>(model.prefill(1568, 32)) + 2e6);
  // Of the second turn the prefill member has the first prompt, and brings the first reply from the other
  // one.
  const RequestRecord& second = report.requests[1];
  EXPECT_EQ(second.prompt_tokens, 2260u);
  EXPECT_GE(second.prefilled, 640u);
  EXPECT_LT(second.prefilled, 640u + 2 * kBlockTokens);
  EXPECT_GE(second.from[0], 1600u) << "the decode member has the conversation";
}

// Where prefill members read nothing from others, they compute the reply before as well, and the decode
// member still reads from them.
TEST(Cluster, PrefillMembersCanBeToldToReadNothing) {
  constexpr std::uint32_t kReply = 400;
  Trace trace;
  trace.conversations.push_back({{{.pieces = {{1, 1600}}, .reply_tokens = kReply},
                                  {.after = 5 * kNanosPerSecond, .pieces = {{2, 640}}, .reply_tokens = 20}}});
  WorldOptions options = options_of_roles(1, 1);
  for (const std::uint32_t again : {0u, kReply}) {
    options.cluster.prefills_read = again == 0;
    const WorldReport report = run(trace, options);
    EXPECT_EQ(report.cluster.prefilled, 2u);
    EXPECT_GE(report.requests[1].prefilled, 640u + again);
    EXPECT_LT(report.requests[1].prefilled, 640u + again + 2 * kBlockTokens);
    EXPECT_GE(report.cluster.peer_blocks, (1600 + 640) / kBlockTokens - 1) << "but the block that goes on";
  }
}

// A prompt of five passes, each of whose state takes half as long to bring as to compute: all but the last of
// it comes while the prompt is computed.
TEST(Cluster, StateIsReadWhileTheRestOfThePromptIsComputed) {
  constexpr std::uint32_t kPrompt = 3200, kPass = 640;
  Trace trace;
  trace.conversations.push_back({{{.pieces = {{1, kPrompt}}, .reply_tokens = 20}}});
  WorldOptions options = options_of_roles(1, 1);
  options.core.max_batch_tokens = kPass;
  options.core.restore = "kv";  // nothing of it is computed twice because the network is slow
  const PassModel model(options.model, options.machine);
  Nanos computing = 0;
  for (std::uint32_t at = 0; at < kPrompt; at += kPass) computing += model.prefill(at, kPass);
  const double bytes = static_cast<double>(options.model.token_bytes());
  options.cluster.network = {
      .latency = kNanosPerMilli / 10,
      .bytes_per_second = static_cast<std::uint64_t>(kPrompt * bytes * 2e9 / static_cast<double>(computing))};
  const WorldReport early = run(trace, options);
  options.cluster.reads_early = false;
  const WorldReport late = run(trace, options);
  EXPECT_EQ(late.cluster.read_early, 0u);
  EXPECT_GE(early.cluster.read_early, 3 * kPass);
  EXPECT_LT(early.cluster.read_early, kPrompt);
  EXPECT_EQ(early.cluster.peer_blocks, late.cluster.peer_blocks) << "each block once";
  for (const WorldReport* report : {&early, &late}) {
    const RequestRecord& record = report->requests[0];
    EXPECT_EQ(record.prefilled, kPrompt);
    EXPECT_EQ(record.from[0] + record.from[3], 0u) << "nothing was there before";
  }
  const auto first = [](const WorldReport& report) {
    return report.requests[0].first_token - report.requests[0].arrived;
  };
  EXPECT_GE(first(late), computing + computing * 2 / 5);
  EXPECT_LE(first(early), computing + computing / 10 + computing / 5)
      << "a fifth of the state, and a few rows";
}

// All prompts have one beginning. The first reply begins after some 1.3 s and ends after 2.9 s. The second
// request comes after 2 s: a front that learns of a prompt when its reply begins sends it where that was, and
// all later ones too; one that learns of it at the end sends it to the other instance, which is idle, and
// both have the beginning from then on.
TEST(Cluster, PromptsThatAFrontLearnsOfLateSpread) {
  Trace trace;
  for (std::uint64_t c = 0; c < 40; ++c) {
    trace.conversations.push_back({{{.at = static_cast<Nanos>(c) * 2 * kNanosPerSecond,
                                     .pieces = {{1, 2400}, {c + 2, 40}},
                                     .reply_tokens = 300}}});
  }
  WorldOptions options = options_of(2, RoutingPolicy::kPromptTree);
  options.cluster.peers = false;
  const auto computed = [&](Remembers remembers) {
    options.cluster.remembers = remembers;
    const WorldReport report = run(trace, options);
    std::uint64_t lacked = 0;  // requests that did not find the beginning
    for (const RequestRecord& record : report.requests) lacked += record.from[0] < 2'000;
    return lacked;
  };
  EXPECT_EQ(computed(Remembers::kBegun), 1u);
  EXPECT_EQ(computed(Remembers::kEnded), 2u);
}

// A prompt's pass holds up the replies beside it, but not those of another instance.
TEST(Cluster, PromptsElsewhereDoNotHoldUpReplies) {
  Trace trace;
  trace.conversations.push_back({{{.pieces = {{1, 100}}, .reply_tokens = 600}}});
  for (std::uint64_t c = 0; c < 5; ++c) {
    trace.conversations.push_back({{{.at = static_cast<Nanos>(c + 1) * kNanosPerSecond,
                                     .pieces = {{c + 2, 3000}},
                                     .reply_tokens = 1}}});
  }
  WorldOptions both = options_of(2, RoutingPolicy::kFirstToken);
  both.cluster.instances = 1;
  const Nanos beside = run(trace, both).requests[0].ended;
  WorldOptions roles = options_of_roles(1, 1);
  const Nanos elsewhere = run(trace, roles).requests[0].ended;
  const PassModel model(roles.model, roles.machine);
  EXPECT_GT(beside, elsewhere + 4 * model.prefill(0, 3000));
  roles.cluster.handover = Handover::kPredicted;
  const WorldReport predicted = run(trace, roles);
  EXPECT_GE(predicted.cluster.prefilled, 5u);
  EXPECT_LT(predicted.requests[0].ended, elsewhere + model.prefill(0, 3000));
}

// The decode member hears of it a way later, and computes the prompt.
TEST(Cluster, ADeathOfThePrefillMemberCostsItsTimeAlone) {
  Trace trace;
  trace.conversations.push_back({{{.pieces = {{1, 3000}}, .reply_tokens = 4}}});
  WorldOptions options = options_of_roles(1, 1);
  const PassModel model(options.model, options.machine);
  const Nanos prompt = model.prefill(0, 3000);
  std::uint32_t seen = 0;
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    options.faults = {.seed = seed, .restarts = prompt, .away = kFar};
    const WorldReport report = run(trace, options);
    const RequestRecord& record = report.requests[0];
    if (report.cluster.prefills_failed != 1 || record.moved > 0 || record.outcome != Outcome::kDone) continue;
    ++seen;
    EXPECT_EQ(record.prefilled, 0u);
    EXPECT_GE(record.first_token - record.arrived, prompt);
    EXPECT_LE(record.first_token - record.arrived, 2 * prompt + 10 * kNanosPerMilli);
  }
  EXPECT_GT(seen, 5u);
}

// What the disk kept is there again, and what it lost is not.
TEST(Cluster, AnInstanceComesBackWithItsDiskOrWithout) {
  const Trace trace = talks(40, 4);
  std::uint64_t recovered[2] = {};
  for (const bool loses : {false, true}) {
    WorldOptions options = options_of(2, RoutingPolicy::kFirstToken);
    options.check = false;
    options.core.groups[0].disk_blocks = 4000;
    options.core.hole_records = 100;
    options.machine.disk_read = options.machine.disk_write = {100'000, 1'000'000'000};
    options.core.costs = PassModel(options.model, options.machine).curves();
    options.faults = {
        .seed = 3, .restarts = 5 * kNanosPerSecond, .away = kNanosPerSecond, .disk_lost = loses ? 1.0 : 0.0};
    const WorldReport report = run(trace, options);
    EXPECT_GT(report.restarts, 2u);
    EXPECT_EQ(report.disks_lost > 0, loses);
    recovered[loses] = report.recovered;
  }
  EXPECT_GT(recovered[0], 100u);
  EXPECT_EQ(recovered[1], 0u);
}

TEST(Cluster, RefusesWhatNoClusterCanHave) {
  const Trace trace = talks(1, 1);
  WorldOptions options = options_of(0, RoutingPolicy::kFirstToken);
  options.faults = {.restarts = kNanosPerSecond, .away = kNanosPerSecond};
  EXPECT_EQ(run_world(trace, options).status().field(), "faults.away_s");
  options = options_of(kInstancesMax + 1, RoutingPolicy::kFirstToken);
  EXPECT_EQ(run_world(trace, options).status().field(), "cluster");
  options = options_of(2, RoutingPolicy::kFirstToken);
  options.cluster.prefills = 2;
  EXPECT_EQ(run_world(trace, options).status().field(), "cluster.prefills");
  options.cluster.prefills = 1;
  options.cluster.peers = false;
  EXPECT_EQ(run_world(trace, options).status().field(), "cluster.prefills");
  options = options_of(2, RoutingPolicy::kFirstToken);
  options.event_log = "/nowhere/log";
  EXPECT_EQ(run_world(trace, options).status().field(), "event_log");
}

}  // namespace
}  // namespace loci::sim
