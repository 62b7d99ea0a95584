// SPDX-License-Identifier: Apache-2.0
// Traces in Loci's format, and scenarios: what is accepted, what is refused and how that is said.
#include "loci/sim/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "loci/base/folder_testing.h"
#include "loci/server/profile/profile_testing.h"
#include "loci/sim/scenario.h"
#include "loci/sim/trace_readers.h"

namespace loci::sim {
namespace {

std::string error_of(const std::string& text) { return parse_trace(text, "t.jsonl").status().message(); }

TEST(Trace, ReadsConversationsAndHashes) {
  const auto trace = parse_trace(
      R"({"time_ms":0,"conversation":"a","prompt_tokens":100,"reply_tokens":20}
{"time_ms":5.5,"conversation":7,"prompt_tokens":10,"reply_tokens":1,"cancel_ms":3}

{"time_ms":9,"conversation":"a","prompt_tokens":150,"reply_tokens":5,"think_ms":2000}
{"time_ms":9,"prompt_tokens":40,"reply_tokens":5,"block_tokens":16,"hashes":[1,2,3]}
)",
      "t.jsonl");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->conversations.size(), 3u);
  EXPECT_EQ(trace->requests(), 4u);
  const Conversation& a = trace->conversations[0];
  ASSERT_EQ(a.turns.size(), 2u);
  EXPECT_EQ(a.turns[1].pieces[0].tokens, 30u) << "150 less the first prompt and reply";
  EXPECT_EQ(a.turns[1].after, 2 * kNanosPerSecond);
  EXPECT_EQ(a.turns[1].at, 0);
  EXPECT_EQ(trace->conversations[1].turns[0].at, 5'500'000);
  EXPECT_EQ(trace->conversations[1].turns[0].cancel_after, 3'000'000);
  const Turn& hashed = trace->conversations[2].turns[0];
  EXPECT_FALSE(hashed.appends);
  ASSERT_EQ(hashed.pieces.size(), 3u);
  EXPECT_EQ(hashed.pieces[2].tokens, 8u);
}

TEST(Trace, NamesFileLineFieldExpectedAndFound) {
  EXPECT_EQ(error_of("[1]\n"), "t.jsonl:1: line: expected a JSON object, found array");
  EXPECT_EQ(error_of("{\"time_ms\":0,"), "t.jsonl:1: line: expected a JSON object, found '{\"time_ms\":0,'");
  EXPECT_EQ(
      error_of(R"({"time_ms":0,"prompt":1})"),
      "t.jsonl:1: prompt: expected one of time_ms, conversation, prompt_tokens, reply_tokens, think_ms, "
      "cancel_ms, block_tokens, hashes, found this field");
  EXPECT_EQ(error_of(R"({"time_ms":-1,"conversation":1,"prompt_tokens":1,"reply_tokens":1})"),
            "t.jsonl:1: time_ms: expected milliseconds from 0 to 10^12, found -1");
  EXPECT_EQ(error_of("\n"
                     R"({"time_ms":1,"conversation":1,"prompt_tokens":0,"reply_tokens":1})"),
            "t.jsonl:2: prompt_tokens: expected a whole number from 1 to 16777216, found 0");
  EXPECT_EQ(error_of(R"({"time_ms":1,"conversation":1,"prompt_tokens":16777217,"reply_tokens":1})"),
            "t.jsonl:1: prompt_tokens: expected a whole number from 1 to 16777216, found 16777217");
  EXPECT_EQ(error_of("{\"time_ms\":9,\"conversation\":1,\"prompt_tokens\":5,\"reply_tokens\":1}\n"
                     "{\"time_ms\":8,\"conversation\":2,\"prompt_tokens\":5,\"reply_tokens\":1}"),
            "t.jsonl:2: time_ms: expected at least 9 ms, that of the line before, found 8 ms");
  EXPECT_EQ(error_of(R"({"time_ms":5.5,"conversation":1,"prompt_tokens":1,"reply_tokens":1}
{"time_ms":5.2,"conversation":2,"prompt_tokens":1,"reply_tokens":1})"),
            "t.jsonl:2: time_ms: expected at least 5.5 ms, that of the line before, found 5.2 ms");
  EXPECT_EQ(error_of(R"({"time_ms":1,"prompt_tokens":40,"reply_tokens":1,"block_tokens":16,"hashes":[1]})"),
            "t.jsonl:1: hashes: expected 3 hashes for 40 tokens in blocks of 16, found 1");
  EXPECT_EQ(
      error_of("{\"time_ms\":0,\"conversation\":1,\"prompt_tokens\":5,\"reply_tokens\":4}\n"
               "{\"time_ms\":0,\"conversation\":1,\"prompt_tokens\":9,\"reply_tokens\":1}"),
      "t.jsonl:2: prompt_tokens: expected more than the 9 of the conversation's last prompt and reply (or "
      "hashes), found 9");
  EXPECT_EQ(error_of("\n"), "t.jsonl: expected at least one request, found none");
}

TEST(Trace, BlocksMayHaveLengthsOfTheirOwnAndNameTheReply) {
  const auto trace = parse_trace(
      R"({"time_ms":0,"conversation":1,"prompt_tokens":50,"reply_tokens":20,"block_tokens":[40,30],"hashes":[7,8]}
{"time_ms":1,"conversation":1,"prompt_tokens":75,"reply_tokens":4,"block_tokens":[40,30,5],"hashes":[7,8,9],"think_ms":3}
{"time_ms":2,"conversation":1,"prompt_tokens":80,"reply_tokens":1}
)",
      "t.jsonl");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->conversations.size(), 1u);
  const std::vector<Turn>& turns = trace->conversations[0].turns;
  ASSERT_EQ(turns.size(), 3u);
  const std::uint64_t seven = turns[0].pieces[0].content, eight = turns[0].pieces[1].content;
  EXPECT_EQ(turns[0].pieces, (std::vector<Piece>{{seven, 40}, {eight, 10}}));
  EXPECT_EQ(turns[0].reply, (std::vector<Piece>{{eight, 20, 10}}));
  EXPECT_EQ(turns[1].pieces, (std::vector<Piece>{{seven, 40}, {eight, 30}, turns[1].pieces[2]}));
  EXPECT_TRUE(turns[1].reply.empty());
  EXPECT_EQ(turns[1].at, 0);
  EXPECT_EQ(turns[1].noted, kNanosPerMilli);
  EXPECT_EQ(turns[1].after, 3 * kNanosPerMilli);
  EXPECT_TRUE(turns[2].appends);
  EXPECT_EQ(turns[2].pieces[0].tokens, 1u) << "80 less the 75 and 4 of the turn before";

  const std::string head = R"({"time_ms":0,"prompt_tokens":40,"reply_tokens":2,)";
  EXPECT_EQ(error_of(head + R"("block_tokens":[40],"hashes":[1,2]})"),
            "t.jsonl:1: hashes: expected 1 hashes, one for each of block_tokens, found 2");
  EXPECT_EQ(
      error_of(head + R"("block_tokens":[30],"hashes":[1]})"),
      "t.jsonl:1: block_tokens: expected 40 tokens in all, the prompt's, or 42, with the reply's, found 30");
  EXPECT_EQ(
      error_of(head + R"("block_tokens":[40,16777216],"hashes":[1,2]})"),
      "t.jsonl:1: block_tokens: expected 40 tokens in all, the prompt's, or 42, with the reply's, found "
      "more");
  EXPECT_EQ(error_of(head + R"("block_tokens":[40,0],"hashes":[1,2]})"),
            "t.jsonl:1: block_tokens: expected whole numbers from 1 to 16777216, found 0");
  EXPECT_EQ(error_of(head + R"("block_tokens":[40],"hashes":[-1]})"),
            "t.jsonl:1: hashes: expected whole numbers below 2^64, found -1");
}

TEST(Trace, TheFirstRequestsAreThoseThatCameFirst) {
  auto trace = parse_trace(
      R"({"time_ms":0,"conversation":"a","prompt_tokens":100,"reply_tokens":20}
{"time_ms":5,"conversation":"b","prompt_tokens":10,"reply_tokens":1}
{"time_ms":9,"conversation":"a","prompt_tokens":150,"reply_tokens":5,"think_ms":2}
{"time_ms":9.5,"conversation":"c","prompt_tokens":150,"reply_tokens":5}
)",
      "t.jsonl");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  keep_first(*trace, 3);
  ASSERT_EQ(trace->conversations.size(), 2u);
  EXPECT_EQ(trace->conversations[0].turns.size(), 2u);
  keep_first(*trace, 1);
  EXPECT_EQ(trace->requests(), 1u);
}

TEST(Trace, ATruncatedGzipIsNamed) {
  const TestFolder folder;
  const std::string path = folder.file("trace.gz");
  const std::string line = R"({"time_ms":0,"conversation":"a","prompt_tokens":100,"reply_tokens":20})";
  ASSERT_EQ(std::system(("printf '%s\\n' '" + line + "' | gzip > " + path).c_str()), 0);
  EXPECT_TRUE(read_source({.file = path}).ok());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 10);
  const Status status = read_source({.file = path}).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find(path + ": expected the end of the gzip data"), std::string::npos);
  std::filesystem::remove(path);
  EXPECT_EQ(read_source({.file = path}).status().code(), StatusCode::kNotFound);
}

TEST(Trace, TimesAreScaledWithinWhatATraceMayHave) {
  const std::string text =
      "{\"time_ms\":0,\"conversation\":1,\"prompt_tokens\":1,\"reply_tokens\":1}\n"
      "{\"time_ms\":1000,\"conversation\":1,\"prompt_tokens\":9,\"reply_tokens\":1,\"think_ms\":500}\n";
  Trace trace = parse_trace(text, "t").value();
  ASSERT_TRUE(scale_times(trace, 1e9).ok()) << "5 * 10^11 ms of thinking";
  EXPECT_EQ(trace.conversations[0].turns[1].after, 500'000'000'000'000'000);
  EXPECT_EQ(trace.conversations[0].turns[1].noted, 1'000'000'000'000'000'000);
  trace = parse_trace(text, "t").value();
  const Status status = scale_times(trace, 1e10);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "t: trace.time_scale: expected turns due within 10^12 ms of the begin, found one at 1e+13 ms");
  EXPECT_EQ(trace.conversations[0].turns[1].after, 500'000'000) << "nothing was changed";
  // A client's patience is a time as any other.
  const std::string leaving =
      R"({"time_ms":900,"conversation":1,"prompt_tokens":9,"reply_tokens":1,"cancel_ms":2500})";
  trace = parse_trace(leaving, "t").value();
  ASSERT_TRUE(scale_times(trace, 2).ok());
  EXPECT_EQ(trace.conversations[0].turns[0].at, 1'800'000'000);
  EXPECT_EQ(trace.conversations[0].turns[0].cancel_after, 5'000'000'000);
  EXPECT_EQ(scale_times(trace, 3e8).message(),
            "t: trace.time_scale: expected clients that leave within 10^12 ms of their request, found one "
            "after 1.5e+12 ms");
  // Each turn is in range, but they follow one another.
  Trace long_talk{.name = "t", .conversations = {{}}, .notes = {}};
  for (int i = 0; i < 20; ++i) long_talk.conversations[0].turns.push_back({.after = 100'000'000'000'000'000});
  EXPECT_FALSE(scale_times(long_talk, 1).ok());
}

TEST(Scenario, NamesWhatIsWrong) {
  const auto error = [](const std::string& text) {
    const auto json = parse_scenario_text(text, "s.json");
    return json.ok() ? parse_scenario(*json, "s.json").status().message() : json.status().message();
  };
  EXPECT_TRUE(error("{\n\"model\": 1,\n}").starts_with("s.json:3: expected JSON"));
  EXPECT_TRUE(error("112e1112").starts_with("s.json:1: expected JSON")) << "no double holds that";
  EXPECT_TRUE(error("[]").starts_with("s.json: the file: expected an object, found array"));
  EXPECT_TRUE(
      error(R"({"model":"gpt","machine":"a100-80g"})").starts_with("s.json: model: expected one of opt-13b"));
  EXPECT_TRUE(error("{}").starts_with("s.json: model: expected one of opt-13b"));
  EXPECT_TRUE(error("{}").ends_with("or an object that describes one, found nothing"));
  EXPECT_TRUE(error(R"({"model":{}})").starts_with("s.json: model.parameters_billions: expected a number"));
  EXPECT_TRUE(error(R"({"model":"opt-13b"})").starts_with("s.json: machine: expected one of a100"));
  EXPECT_TRUE(error(R"({"model":"opt-13b"})").ends_with("of `loci profile`, found nothing"));
  EXPECT_TRUE(error(R"({"model":"opt-13b","machine":"abacus"})")
                  .starts_with("s.json: machine: expected one of a100"));
  EXPECT_EQ(error(R"({"model":"opt-13b","machine":"h800","engine":{"eviction":"best"}})"),
            "s.json: engine.eviction: expected one of lru, fifo, random, retention, lookahead, value, found "
            "'best'");
  EXPECT_EQ(error(R"({"model":"opt-13b","machine":"h800","workload":{"rate":-1}})"),
            "s.json: workload.rate: expected a number from 1e-09 to 1000000000, found -1");
  EXPECT_TRUE(error(R"({"model":"opt-13b","machine":"h800","colour":1})")
                  .starts_with("s.json: colour: expected one of"));
  EXPECT_EQ(
      error(R"({"model":"opt-13b","machine":"h800","cluster":{"policy":"best"}})"),
      "s.json: cluster.policy: expected one of first-token, prompt-tree, session, least-load, found 'best'");
  EXPECT_EQ(error(R"({"model":"opt-13b","machine":"h800","cluster":{"instances":65}})"),
            "s.json: cluster.instances: expected a whole number from 1 to 64, found 65");
  EXPECT_EQ(error(R"({"model":"opt-13b","machine":"h800","cluster":{"handover":"never"}})"),
            "s.json: cluster.handover: expected one of predicted, always, found 'never'");
  EXPECT_EQ(error(R"({"model":"opt-13b","machine":"h800","faults":{"disk_lost":1.5}})"),
            "s.json: faults.disk_lost: expected a number from 0 to 1, found 1.5");
  EXPECT_EQ(error(R"({"model":"opt-13b","machine":"h800","faults":{"disk_speed":0.5}})"),
            "s.json: faults.disk_slow_at_s: expected when the disk becomes slow, found nothing");
  EXPECT_EQ(error(R"({"model":"opt-13b","machine":"h800","faults":{"restarts_s":9,"away_s":1}})"),
            "s.json: faults.away_s: expected 'cluster' beside it, or nothing, found 1");
  nlohmann::json json = nlohmann::json::object();
  EXPECT_EQ(set_field(json, "memory..host_gb", "3").message(),
            "expected FIELD.FIELD=VALUE, found 'memory..host_gb=3'");
  EXPECT_EQ(error(R"({"model":"opt-13b","machine":"h800"})"), "");
}

// A field that would be ignored is refused, and so is one of two that say different things.
TEST(Scenario, RefusesWhatItWouldIgnore) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"("workload":{"kind":"documents","shape":{"sigma":1}})",
       "workload.shape: expected the kind 'conversations' beside it, or nothing, found 'documents'"},
      {R"("workload":{"shape":{}})",
       "workload.shape: expected the kind 'conversations' beside it, or nothing, found 'sharegpt-pensieve'"},
      {R"("faults":{"slow":2})",
       "faults.well_s: expected how long a link stays well in the mean, found nothing"},
      {R"("faults":{"fails":0.5})",
       "faults.well_s: expected how long a link stays well in the mean, found nothing"},
      {R"("faults":{"disk_lost":0.5})",
       "faults.restarts_s: expected the mean time until a process ends, found nothing"},
      {R"("cluster":{},"faults":{"away_s":3})",
       "faults.restarts_s: expected the mean time until a process ends, found nothing"},
      {R"("memory":{"device_gb":9,"device_tokens":1000})",
       "memory.device_tokens: expected nothing beside device_gb, found 1000"},
      {R"("memory":{"host_gb":9,"host_tokens":0})",
       "memory.host_tokens: expected nothing beside host_gb, found 0"},
      {R"("memory":{"disk_gb":9,"disk_tokens":1000})",
       "memory.disk_tokens: expected nothing beside disk_gb, found 1000"},
      {R"("memory":{"device_gb":0})",
       "memory.device_gb: expected room for at least one block of 32 tokens, found 0"},
      {R"("memory":{"device_gb":1e-9})",
       "memory.device_gb: expected room for at least one block of 32 tokens, found 1e-09"},
      {R"("memory":{"device_tokens":31})",
       "memory.device_tokens: expected room for at least one block of 32 tokens, found 31"},
      {R"("engine":{"swap_chunk_tokens":33})",
       "engine.swap_chunk_tokens: expected a multiple of 32 up to 32768, found 33"},
      {R"("cluster":{"prefills":4})", "cluster.prefills: expected fewer than the 4 instances, found 4"},
      {R"("cluster":{"prefills":1,"peers":false})",
       "cluster.peers: expected true, since decode members read what the prefill members compute, found "
       "false"},
      {R"("trace":{"requests":5})", "trace.requests: expected 'file' beside it, or nothing, found 5"},
      {R"("trace":{"time_scale":2})", "trace.time_scale: expected 'file' beside it, or nothing, found 2"},
      {R"("trace":{"format":"log"})", "trace.format: expected 'file' beside it, or nothing, found \"log\""},
      {R"("trace":{"rate":2})", "trace.rate: expected 'file' beside it, or nothing, found 2"},
      {R"("trace":{"file":"t","rate":2})",
       "trace.rate: expected the format weka beside it, or nothing, found 2"},
      {R"("trace":{"file":"t","format":"weka","from_s":2})",
       "trace.from_s: expected the format servegen beside it, or nothing, found 2"},
      {R"("trace":{"file":"t","format":"azure","model":"m"})",
       "trace.model: expected the format servegen beside it, or nothing, found \"m\""},
      {R"("trace":{"file":"t","format":"csv"})",
       "trace.format: expected one of loci, mooncake, weka, azure, arena-clients, servegen, log, found "
       "'csv'"},
  };
  for (const auto& [fields, message] : wrong) {
    const nlohmann::json json =
        nlohmann::json::parse(R"({"model":"opt-13b","machine":"h800",)" + std::string(fields) + "}");
    EXPECT_EQ(parse_scenario(json, "s.json").status().message(), std::string("s.json: ") + message);
  }
  const nlohmann::json none = nlohmann::json::parse(
      R"({"model":"opt-13b","machine":"h800","memory":{"host_gb":0,"host_tokens":1000},
          "workload":{"kind":"conversations","shape":{"sigma":1}},"faults":{"slow":1,"fails":0,"disk_lost":0}})");
  EXPECT_TRUE(parse_scenario(none, "s.json").ok()) << "nothing of it is ignored";
}

// As a server's `--baseline`: what the paper's system lacks is off, and what says something else is refused.
TEST(Scenario, ABaselineIsAPapersWholeSet) {
  const auto parsed = [](const std::string& baseline, const std::string& engine, const std::string& more) {
    return parse_scenario(
        nlohmann::json::parse(R"({"model":"opt-13b","machine":"h800","engine":{"baseline":")" + baseline +
                              '"' + engine + "}" + more + "}"),
        "s.json");
  };
  const Result<Scenario> cluster =
      parsed("berkeley-lru", "", R"(,"cluster":{"instances":2},"memory":{"host_gb":9,"disk_gb":9})");
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  EXPECT_FALSE(cluster->world.cluster.peers);
  EXPECT_EQ(cluster->world.core.pass_time, kNever);
  EXPECT_EQ(cluster->world.overflow, Overflow::kStop);
  const Result<Scenario> store = parsed("attentionstore", R"(,"eviction":"lookahead")", "");
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ(store->world.overflow, Overflow::kTruncate);
  EXPECT_TRUE(parsed("stateless", R"(,"stateless":true,"overflow":"cut")", "").ok());

  const std::tuple<const char*, const char*, const char*, const char*> wrong[] = {
      {"pensieve", R"(,"eviction":"lru")", "",
       "engine.eviction: expected retention, which pensieve has, or nothing, found \"lru\""},
      {"stateless", R"(,"reuse":true)", "",
       "engine.reuse: expected false, which stateless has, or nothing, found true"},
      {"pensieve", R"(,"swap_out_percent":30)", "",
       "engine.swap_out_percent: expected 25, which pensieve has, or nothing, found 30"},
      {"pensieve", R"(,"pass_time_ms":100)", "",
       "engine.pass_time_ms: expected nothing, since pensieve limits no pass's time, found 100"},
      {"pensieve", R"(,"stateless":true)", "",
       "engine.stateless: expected false, since pensieve reuses state, found true"},
      {"pensieve", R"(,"overflow":"truncate")", "",
       "engine.overflow: expected stop or cut, since pensieve truncates no history, found \"truncate\""},
      {"attentionstore", R"(,"overflow":"cut")", "",
       "engine.overflow: expected truncate, which attentionstore does, found \"cut\""},
      {"pensieve", "", R"(,"memory":{"disk_gb":9})",
       "memory.disk_gb: expected nothing, since pensieve has no such tier, found 9"},
      {"stateless", "", R"(,"memory":{"host_tokens":3200})",
       "memory.host_tokens: expected nothing, since stateless has no such tier, found 3200"},
      {"pensieve", "", R"(,"cluster":{"peers":true})",
       "cluster.peers: expected false, since pensieve reads nothing from peers, found true"},
      {"pensieve", "", R"(,"cluster":{"prefills":1})",
       "cluster.prefills: expected 0, since pensieve reads nothing from peers, found 1"},
  };
  for (const auto& [baseline, engine, more, message] : wrong)
    EXPECT_EQ(parsed(baseline, engine, more).status().message(), std::string("s.json: ") + message);
}

TEST(Scenario, DescribesAClusterAndItsFaults) {
  const nlohmann::json json = nlohmann::json::parse(
      R"({"model":"opt-13b","machine":"h800","seed":7,
          "cluster":{"fronts":2,"policy":"session","peers":false,"network_gb_s":1.5,"network_latency_ms":3,
                     "peer_rounds":2,"remembers":"ended","prefills_read":false},
          "faults":{"restarts_s":60,"away_s":0.5,"disk_lost":0.25,"well_s":9,"ill_s":1,"slow":4,"fails":0.1,
                    "disk_slow_at_s":60,"disk_speed":0}})");
  const Result<Scenario> scenario = parse_scenario(json, "s.json");
  ASSERT_TRUE(scenario.ok()) << scenario.status().message();
  const ClusterOptions& cluster = scenario->world.cluster;
  EXPECT_EQ(cluster.instances, 4u) << "where nothing is said";
  EXPECT_EQ(cluster.fronts, 2u);
  EXPECT_EQ(cluster.policy, RoutingPolicy::kSession);
  EXPECT_FALSE(cluster.peers);
  EXPECT_EQ(cluster.network, (LinkCost{3'000'000, 1'500'000'000}));
  EXPECT_EQ(cluster.peer_rounds, 2);
  EXPECT_EQ(cluster.remembers, Remembers::kEnded);
  EXPECT_FALSE(cluster.prefills_read);
  const FaultOptions& faults = scenario->world.faults;
  EXPECT_EQ(faults.seed, 7u);
  EXPECT_EQ(faults.restarts, 60 * kNanosPerSecond);
  EXPECT_EQ(faults.away, kNanosPerSecond / 2);
  EXPECT_EQ(faults.disk_lost, 0.25);
  EXPECT_EQ(faults.well, 9 * kNanosPerSecond);
  EXPECT_EQ(faults.ill, kNanosPerSecond);
  EXPECT_EQ(faults.slow, 4);
  EXPECT_EQ(faults.fails, 0.1);
  EXPECT_EQ(faults.disk_slow_at, 60 * kNanosPerSecond);
  EXPECT_EQ(faults.disk_speed, 0);
  EXPECT_EQ(faults.disk_limit, kDiskLimit);
}

// With 200,000 requests of two pieces a run took 98 MB beside what a program takes in any case.
TEST(Scenario, EstimatesTheMemoryThatRequestsTake) {
  const Scenario scenario =
      parse_scenario({{"model", "opt-13b"}, {"machine", "h800"}, {"memory", {{"device_tokens", 3200u}}}}, "s")
          .value();
  Trace single;
  for (std::uint64_t c = 0; c < 10'000; ++c)
    single.conversations.push_back(
        {{{.appends = false, .pieces = {{c, 16}, {c + 1, 1}}, .reply_tokens = 1}}});
  const double each = static_cast<double>(memory_estimate(single, scenario.world)) / 10'000;
  EXPECT_GT(each, 400);
  EXPECT_LT(each, 800);
  // Only the last of whole prompts is kept.
  Trace agent{.name = "agent", .conversations = {{}}, .notes = {}};
  for (std::uint64_t t = 0; t < 100; ++t)
    agent.conversations[0].turns.push_back({.appends = false, .pieces = {{1, 100'000}}, .reply_tokens = 1});
  const std::uint64_t whole = memory_estimate(agent, scenario.world);
  for (Turn& turn : agent.conversations[0].turns) turn.appends = true;
  const std::uint64_t alone = memory_estimate(agent, scenario.world);
  EXPECT_GT(alone, whole + 20'000'000u);
  // What may be found by another conversation is remembered.
  agent.conversations.push_back(agent.conversations[0]);
  const std::uint64_t shared = memory_estimate(agent, scenario.world);
  agent.conversations[1].turns[0].pieces[0].content = 2;
  constexpr std::uint64_t kBlocks = 2 * 100 * 100'000 / kBlockTokens;
  EXPECT_GE(shared, memory_estimate(agent, scenario.world) + kBlocks * 40);
}

// By the figures with which known machines are listed.
TEST(Scenario, TakesAMachineFromAFile) {
  const TestFolder folder;
  const std::string path = folder.file("machine");
  const nlohmann::json figures = {{"comment", "like an H800"},        {"peak_flops", 990e12},
                                  {"memory_bandwidth", 3.35e12},      {"memory_bytes", 80e9},
                                  {"link_bandwidth", 64'000'000'000}, {"disk_read", 6.9e9},
                                  {"disk_write", 4'000'000'000}};
  std::ofstream(path) << figures;
  nlohmann::json json = {{"model", "opt-13b"}, {"machine", {{"file", path}}}, {"processors", 2u}};
  const auto described = parse_scenario(json, "s.json");
  ASSERT_TRUE(described.ok()) << described.status().message();
  EXPECT_EQ(described->world.machine.name, path);
  EXPECT_EQ(described->world.machine.memory_bytes, 160e9);
  json["machine"] = "h800";
  const Machine known = parse_scenario(json, "s.json").value().world.machine;
  EXPECT_EQ(described->world.machine.product_flops, known.product_flops);
  EXPECT_EQ(described->world.machine.memory_bandwidth, known.memory_bandwidth);
  EXPECT_EQ(described->world.machine.host_load, known.host_load);
  EXPECT_EQ(described->world.machine.disk_read, known.disk_read);
  EXPECT_EQ(described->world.machine.disk_write, known.disk_write);

  json["machine"] = {{"file", path}};
  const auto error = [&](const nlohmann::json& changed) {
    nlohmann::json other = figures;
    other.update(changed);
    std::ofstream(path) << other;
    return parse_scenario(json, "s.json").status().message();
  };
  const std::string begin =
      "s.json: machine.file: expected a file with a machine's peaks, found " + path + ": ";
  EXPECT_EQ(error({{"peak_flops", "many"}}),
            begin + "peak_flops: expected a number from 1000000 to 1e+18, found \"many\"");
  EXPECT_EQ(error({{"disk_read", 0}}),
            begin + "disk_read: expected a number from 1000 to 1000000000000000, found 0");
  EXPECT_TRUE(error({{"colour", 1}}).starts_with(begin + "colour: expected one of comment, peak_flops"));
  std::ofstream(path) << R"({"peak_flops": 1e12})";
  EXPECT_EQ(parse_scenario(json, "s.json").status().message(),
            begin + "memory_bandwidth: expected this field, found nothing");
  std::filesystem::remove(path);
  EXPECT_TRUE(parse_scenario(json, "s.json").status().message().starts_with(begin));
  json["machine"] = {{"file", path}, {"profile", path}};
  json.erase("processors");
  EXPECT_EQ(parse_scenario(json, "s.json").status().message(),
            "s.json: machine.profile: expected nothing beside file, found '" + path + "'");
}

// The file is read as `loci profile` writes it.
TEST(Scenario, TakesAProfileAsItsMachine) {
  const TestFolder folder;
  const std::string path = folder.file("profile");
  const CostProfile profile = some_profile();
  ASSERT_TRUE(write_profile(path, profile).ok());
  const nlohmann::json json = {{"model", "opt-13b"},
                               {"machine", {{"profile", path}}},
                               {"efficiency", {{"fixed_ms", 0.5}}},
                               {"links", {{"disk_read_gb_s", 3}}}};
  const Result<Scenario> scenario = parse_scenario(json, "s.json");
  ASSERT_TRUE(scenario.ok()) << scenario.status().message();
  const Machine& machine = scenario->world.machine;
  EXPECT_EQ(machine.measured, profile.curves);
  EXPECT_EQ(machine.passes, profile.passes);
  EXPECT_EQ(machine.host_save, profile.curves.host_save);
  EXPECT_EQ(machine.disk_read.bytes_per_second, 3'000'000'000u);
  EXPECT_EQ(machine.fixed, 500'000);
  CostCurves believed = profile.curves;
  believed.disk_read = machine.disk_read;
  EXPECT_EQ(scenario->world.core.costs, believed)
      << "what was measured, but for the link that has another rate";
  // What the profile has measured is not said again.
  for (const char* field : {"processors", "efficiency.products", "efficiency.memory"}) {
    nlohmann::json twice = json;
    ASSERT_TRUE(set_field(twice, field, "1").ok());
    EXPECT_EQ(parse_scenario(twice, "s.json").status().message(),
              std::string("s.json: ") + field +
                  ": expected nothing, since the machine's profile has measured it, found 1");
  }
  std::ofstream(path) << "{}";
  EXPECT_TRUE(parse_scenario(json, "s.json")
                  .status()
                  .message()
                  .starts_with("s.json: machine.profile: expected a file of `loci profile`, found " + path));
}

// An export looks at the requests alone, but a field that no scenario has is a mistake there too.
TEST(Scenario, KnowsTheSameFieldsForAnExport) {
  const auto names_in = [](const Status& status) {
    const std::string& text = status.message();
    EXPECT_TRUE(text.starts_with("s.json: sed: expected one of ")) << text;
    const std::string list = text.substr(29, text.rfind(", found this field") - 29);
    std::set<std::string> names;
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t end = std::min(list.find(", ", at), list.size());
      names.insert(list.substr(at, end - at));
      at = end + 2;
    }
    return names;
  };
  nlohmann::json json = {{"model", "opt-13b"}, {"machine", "h800"}, {"sed", 3}};
  const std::set<std::string> names = names_in(parse_requests(json, "s.json").status());
  EXPECT_EQ(names, names_in(parse_scenario(json, "s.json").status()));
  EXPECT_TRUE(names.contains("seed"));
  json.erase("sed");
  EXPECT_TRUE(parse_requests(json, "s.json").ok());
}

}  // namespace
}  // namespace loci::sim
