// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/bench_svg.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace loci {
namespace {

std::size_t count_of(const std::string& text, std::string_view what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TurnRecord turn(std::uint32_t conversation, std::uint32_t number, Nanos ttft) {
  TurnRecord out;
  out.id = {.conversation = conversation, .turn = number};
  out.due = out.sent = (1 + number) * kNanosPerSecond;
  out.first = out.due + ttft * kNanosPerMilli;
  out.gaps = {5 * kNanosPerMilli, 0, 7 * kNanosPerMilli};
  out.ended = out.first + 12 * kNanosPerMilli;
  out.output_tokens = 4;
  return out;
}

ServerRun some_run() {
  ServerRun run;
  for (std::uint32_t c = 0; c < 3; ++c) {
    for (std::uint32_t t = 0; t < 4; ++t) run.turns.push_back(turn(c, t, t == 0 ? 200 : 10 + c));
  }
  return run;
}

void expect_sound(const std::string& svg) {
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  for (const char* bad : {"nan", "inf"}) EXPECT_EQ(svg.find(bad), std::string::npos) << svg;
}

TEST(BenchSvg, DrawsDistributionsAndTheirCourse) {
  BenchResult result;
  result.servers = {some_run()};
  BenchOptions options;
  const std::string turns = bench_svg(result, options, "<title>");
  expect_sound(turns);
  EXPECT_EQ(count_of(turns, "<polyline"), 8u) << "two lines in each of four panels";
  for (const char* text :
       {"&lt;title&gt;", "time to the first token over turns", "time between tokens", ">8.0 ms<",
        ">256.0 ms<", "first turns (3)", "later turns (9)", "later turns (27)", "90th percentile"})
    EXPECT_NE(turns.find(text), std::string::npos) << text;
  options.schedule.rate = 2;
  const std::string time = bench_svg(result, options, "");
  EXPECT_NE(time.find("time to the first token over time"), std::string::npos);

  result.servers.push_back(some_run());
  const std::string both = bench_svg(result, options, "");
  expect_sound(both);
  EXPECT_EQ(count_of(both, "<polyline"), 16u);
  EXPECT_NE(both.find("second server, median"), std::string::npos);
}

TEST(BenchSvg, StandsRunsWithoutReplies) {
  BenchResult result;
  result.servers.resize(2);
  result.servers[0].turns = {turn(0, 0, 1)};
  result.servers[0].turns[0].error = "refused";
  const std::string none = bench_svg(result, {}, "");
  expect_sound(none);
  EXPECT_EQ(count_of(none, "no samples"), 4u);
  EXPECT_EQ(count_of(none, "<polyline"), 0u);
  // One reply at the begin, of one token, in no time.
  result.servers[1].turns = {turn(0, 0, 0)};
  result.servers[1].turns[0].due = result.servers[1].turns[0].sent = result.servers[1].turns[0].first = 0;
  result.servers[1].turns[0].gaps.clear();
  expect_sound(bench_svg(result, {}, ""));
  BenchOptions open;
  open.schedule.rate = 1;
  expect_sound(bench_svg(result, open, ""));
}

// 1,000 turns are few points.
TEST(BenchSvg, PutsManyTurnsIntoBins) {
  BenchResult result;
  result.servers.resize(1);
  for (std::uint32_t t = 0; t < 1000; ++t) result.servers[0].turns.push_back(turn(0, t, 10));
  const std::string svg = bench_svg(result, {}, "");
  expect_sound(svg);
  EXPECT_LT(svg.size(), 40'000u);
}

}  // namespace
}  // namespace loci
