// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/bench_report.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace loci {
namespace {

// A reply of `tokens` tokens sent at `at` ms: the first after `ttft` ms, then one every `gap` ms.
TurnRecord turn(std::uint32_t conversation, std::uint32_t number, Nanos at, Nanos ttft, Nanos gap,
                Nanos tokens) {
  TurnRecord out;
  out.id = {.conversation = conversation, .turn = number};
  out.due = out.sent = at * kNanosPerMilli;
  out.first = out.sent + ttft * kNanosPerMilli;
  out.gaps.assign(static_cast<std::size_t>(tokens - 1), gap * kNanosPerMilli);
  out.ended = out.first + (tokens - 1) * gap * kNanosPerMilli;
  out.prompt_tokens = 100 * (number + 1);
  out.cached_tokens = number == 0 ? 0 : 90;
  out.output_tokens = static_cast<std::uint64_t>(tokens);
  out.counts_known = true;
  return out;
}

TurnRecord failed(std::uint32_t conversation, std::uint32_t number) {
  TurnRecord out;
  out.id = {.conversation = conversation, .turn = number};
  out.error = "the queue is full";
  return out;
}

ServerRun sample_run() {
  ServerRun run{.url = "http://x", .model = "m"};
  run.turns = {turn(0, 0, 0, 50, 5, 11), turn(1, 0, 0, 70, 5, 11), turn(0, 1, 100, 10, 5, 11), failed(1, 1)};
  run.busy = 2 * kNanosPerSecond;
  run.skipped = 3;
  return run;
}

TEST(Figures, TellFirstTurnsFromLaterOnesAndLeaveFailuresOut) {
  const ServerRun run = sample_run();
  EXPECT_EQ(samples_of(run, kTtft, TurnKind::kFirst), (std::vector<double>{50, 70}));
  EXPECT_EQ(samples_of(run, kTtft, TurnKind::kLater), (std::vector<double>{10}));
  EXPECT_EQ(samples_of(run, kTtft, TurnKind::kAll).size(), 3u);
  EXPECT_EQ(samples_of(run, kTbt, TurnKind::kLater), std::vector<double>(10, 5));
  EXPECT_EQ(samples_of(run, kLatency, TurnKind::kLater), (std::vector<double>{60}));
  EXPECT_DOUBLE_EQ(samples_of(run, kNormalised, TurnKind::kLater).at(0), 60.0 / 11);
  EXPECT_EQ(samples_of(run, kPromptTokens, TurnKind::kLater), (std::vector<double>{200}));
  EXPECT_EQ(samples_of(run, kCachedTokens, TurnKind::kLater), (std::vector<double>{90}));
}

TEST(Figures, CountThroughputByTheTimeUnderLoad) {
  const Throughput rate = throughput_of(sample_run());
  EXPECT_EQ(rate.requests, 3u);
  EXPECT_DOUBLE_EQ(rate.requests_per_second, 1.5);
  EXPECT_DOUBLE_EQ(rate.output_tokens_per_second, 16.5);
  EXPECT_DOUBLE_EQ(rate.prompt_tokens_per_second, 200);
  EXPECT_DOUBLE_EQ(throughput_of(ServerRun()).requests_per_second, 0);
}

BenchResult pair_of_runs() {
  BenchResult result;
  result.servers = {{.url = "http://a", .model = "m"}, {.url = "http://b", .model = "m"}};
  for (std::uint32_t c = 0; c < 6; ++c) {
    result.servers[0].turns.push_back(turn(c, 0, 0, 40 + c, 10, 5));
    // Not in the same order.
    result.servers[1].turns.insert(result.servers[1].turns.begin(), turn(c, 0, 0, 2 * (40 + c), 10, 5));
  }
  result.servers[0].turns.push_back(turn(0, 1, 0, 7, 1, 5));  // has no pair
  result.servers[0].rounds = {100, 200, 300};
  result.servers[1].rounds = {50, 100, 150};
  return result;
}

TEST(Ratios, GoByRequestAndByRound) {
  const BenchResult result = pair_of_runs();
  const auto ttft = ratio_of(result, kTtft, TurnKind::kAll);
  ASSERT_TRUE(ttft);
  EXPECT_EQ(ttft->pairs, 6u);
  EXPECT_DOUBLE_EQ(ttft->ratio, 2);
  EXPECT_DOUBLE_EQ(ratio_of(result, kTbt, TurnKind::kAll)->ratio, 1);
  EXPECT_FALSE(ratio_of(result, kTtft, TurnKind::kLater));
  // Half the time: twice the throughput.
  EXPECT_DOUBLE_EQ(throughput_ratio(result)->ratio, 2);
}

// Who sends late waits for the reply since the turn was due.
TEST(Figures, CountFromWhenATurnWasDue) {
  ServerRun run = sample_run();
  run.turns[2].due -= 30 * kNanosPerMilli;
  EXPECT_EQ(samples_of(run, kTtft, TurnKind::kLater), (std::vector<double>{40}));
  EXPECT_EQ(samples_of(run, kLatency, TurnKind::kLater), (std::vector<double>{90}));
  EXPECT_EQ(lateness_of(run), (std::vector<double>{30})) << "of those that have a time of sending";
}

TEST(Figures, CountAsGoodWhatKeepsTheWholeObjective) {
  const ServerRun run = sample_run();
  const auto good = [&](const char* text) { return goodput_of(run, parse_objective(text).value()); };
  EXPECT_EQ(good("ttft=50ms").good, 2u);
  EXPECT_EQ(good("ttft=50ms").of, 7u) << "what failed or was never sent is not good";
  EXPECT_EQ(good("ttft=50ms,tbt=4ms").good, 0u);
  EXPECT_EQ(good("ttft=60ms,tbt=5ms,latency=99ms").good, 1u);
  EXPECT_DOUBLE_EQ(good("latency=1h").requests_per_second, 1.5);
  EXPECT_NEAR(good("latency=1h").share, 3.0 / 7, 1e-12);
}

bool holds(const std::vector<std::string>& remarks, const std::string& text) {
  return std::ranges::any_of(remarks, [&](const std::string& one) { return one.find(text) != one.npos; });
}

TEST(Remarks, SayWhatMakesFiguresDoubtful) {
  ServerRun run = sample_run();
  BenchOptions options;
  options.request = {.max_tokens = 11, .ignore_eos = true};
  EXPECT_TRUE(holds(remarks(run, options), "1 requests failed and 3 turns"));
  EXPECT_TRUE(holds(remarks(run, options), "the queue is full"));
  EXPECT_EQ(remarks(run, options).size(), 1u);
  run.turns.pop_back();
  EXPECT_TRUE(remarks(run, options).empty());
  run.turns[0].output_tokens = 10;
  EXPECT_TRUE(holds(remarks(run, options), "1 replies were not as long as was asked"));
  options.request.ignore_eos = false;
  EXPECT_FALSE(holds(remarks(run, options), "were not as long"));
  options.request.ignore_eos = true;
  run.turns[0].cached_tokens = run.turns[1].cached_tokens = 99;
  EXPECT_TRUE(holds(remarks(run, options), "another --seed"));
  options.schedule.times = {{{}}};
  EXPECT_FALSE(holds(remarks(run, options), "another --seed")) << "the text is the trace's";
  EXPECT_TRUE(holds(remarks(run, options), "99 % of the first turns' prompts were cached: the trace's"));
  run.turns[2].counts_known = false;
  EXPECT_TRUE(holds(remarks(run, options), "without usage"));
  run.turns[2].output_tokens = 400;
  EXPECT_TRUE(holds(remarks(run, options), "tokens: TBT is the time between pieces"));
}

// A figure without samples is not 0, and what a server says is shown, not obeyed.
TEST(Report, ShowsWhatIsAbsentAndWhatIsStrange) {
  BenchResult result;
  result.servers = {{.url = "http://a", .model = "m\x1b[31m\n"}, {.url = "http://b", .model = "m"}};
  result.servers[0].turns = {turn(0, 0, 0, 40, 10, 1)};
  result.servers[1].turns = {failed(0, 0)};
  result.servers[1].turns[0].error = "boom\nline two \x1b[31mred";
  const std::string table = format_report(result, {}, {});
  EXPECT_NE(table.find("model m?[31m?\n"), std::string::npos) << table;
  EXPECT_NE(table.find("the first error: boom?line two ?[31mred\n"), std::string::npos) << table;
  EXPECT_NE(
      table.find(
          "  TTFT, ms                  40.0      40.0      40.0             -         -         -   -\n"),
      std::string::npos)
      << table;
  EXPECT_NE(
      table.find(
          "  TBT, ms                      -         -         -             -         -         -   -\n"),
      std::string::npos)
      << table;
  result.servers.pop_back();
  const std::string one = format_report(result, {}, {});
  const std::size_t row = one.find("  TBT, ms");
  EXPECT_EQ(one.substr(row, one.find('\n', row) - row).find('0'), std::string::npos) << one;
}

TEST(Report, HasATableAndJson) {
  BenchResult one;
  one.servers = {sample_run()};
  BenchOptions options;
  options.request.max_tokens = 11;
  const std::string table = format_report(one, options, {});
  EXPECT_NE(table.find("first turns (2)"), std::string::npos) << table;
  EXPECT_NE(table.find("later turns (1)"), std::string::npos);
  EXPECT_NE(table.find("TTFT, ms"), std::string::npos);
  const auto json = report_json(one, options, {}, {{"seed", 1}});
  EXPECT_DOUBLE_EQ(json["servers"][0]["first_turns"]["ttft_ms"]["mean"].get<double>(), 60);
  EXPECT_EQ(json["servers"][0]["requests"]["failed"], 1);
  EXPECT_EQ(json["servers"][0]["requests"]["skipped"], 3);
  EXPECT_EQ(json["servers"][0]["turns"].size(), 4u);
  EXPECT_EQ(json["servers"][0]["turns"][3]["error"], "the queue is full");
  EXPECT_FALSE(json.contains("second_over_first"));
}

TEST(Report, ComparesTwo) {
  const BenchResult result = pair_of_runs();
  const std::string table = format_report(result, {}, {});
  EXPECT_NE(table.find("2.00 (2.00 to 2.00)"), std::string::npos) << table;
  const auto json = report_json(result, {}, {}, {});
  EXPECT_DOUBLE_EQ(json["second_over_first"]["all_turns"]["ttft_ms"]["ratio"].get<double>(), 2);
  EXPECT_TRUE(json["second_over_first"]["later_turns"]["ttft_ms"].is_null());
}

}  // namespace
}  // namespace loci
