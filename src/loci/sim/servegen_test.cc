// SPDX-License-Identifier: Apache-2.0
// Requests drawn from clients' rates and distributions: their means, their bursts, and what is refused.
#include "loci/sim/servegen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "loci/sim/packed_file.h"
#include "loci/sim/trace_source.h"

namespace loci::sim {
namespace {

const std::string kServegenWindows =
    R"("windows":{"0":{"input_tokens":[[20,0.25],[40,0.75]],"output_tokens":[[7,1.0]]},)"
    R"("2000":{"input_tokens":[[100,1.0]],"output_tokens":[[9,0.5],[11,0.5]]}})";

std::string servegen_client(const std::string& rows, const std::string& model = "m") {
  return R"({"model":")" + model + R"(","client":1,"trace":[)" + rows + "]," + kServegenWindows + "}\n";
}

Trace servegen_trace(const std::string& text, const ServegenDraw& draw = {}) {
  return draw_servegen(parse_servegen(text, "s").value(), "s", draw).value();
}

std::string servegen_error(const std::string& text, const ServegenDraw& draw = {}) {
  const auto clients = parse_servegen(text, "s");
  return clients.ok() ? draw_servegen(*clients, "s", draw).status().message() : clients.status().message();
}

TEST(Servegen, KeepsRatesAndLengths) {
  for (const char* gaps :
       {R"("Gamma",0.3,5)", R"("Gamma",4.0,5)", R"("Weibull",0.5,5)", R"("Weibull",2,5)"}) {
    const std::string shape(gaps);
    const Trace trace = servegen_trace(servegen_client(
        "[0,8,2," + shape + "],[1000,0,0,null,0,0],[2000,16,1," + shape + "],[3000,0,0,null,0,0]"));
    double early = 0, late = 0, longer = 0, tokens = 0;
    Nanos last = 0;
    for (const Conversation& conversation : trace.conversations) {
      const Turn& turn = conversation.turns[0];
      EXPECT_GE(turn.at, last);
      last = turn.at;
      const double at = static_cast<double>(turn.at) / 1e9;
      EXPECT_TRUE(at < 1000 || (at >= 2000 && at < 3000)) << at;
      const std::uint64_t prompt = tokens_of(turn.pieces);
      if (at < 1000) {
        ++early;
        longer += prompt == 40;
        EXPECT_EQ(turn.reply_tokens, 7u);
      } else {
        ++late;
        EXPECT_EQ(prompt, 100u);
        tokens += turn.reply_tokens;
      }
    }
    EXPECT_NEAR(early, 8000, 600) << gaps;
    EXPECT_NEAR(late, 16'000, 900) << gaps;
    EXPECT_NEAR(longer / early, 0.75, 0.03) << gaps;
    EXPECT_NEAR(tokens / late, 10, 0.05) << gaps;
  }
}

// The squared coefficient of variation of gaps is 1 / shape where they are Gamma-distributed.
TEST(Servegen, GapsAreAsUnevenAsTheirFamilySays) {
  for (const auto& [shape, wanted] : {std::pair{"0.25", 2.0}, std::pair{"4", 0.5}}) {
    const Trace trace = servegen_trace(servegen_client("[0,50,1,\"Gamma\"," + std::string(shape) + ",1]"));
    double sum = 0, squares = 0, count = 0;
    for (std::size_t i = 1; i < trace.conversations.size(); ++i) {
      const double gap =
          static_cast<double>(trace.conversations[i].turns[0].at - trace.conversations[i - 1].turns[0].at);
      sum += gap;
      squares += gap * gap;
      ++count;
    }
    const double mean = sum / count;
    EXPECT_NEAR(std::sqrt(squares / count - mean * mean) / mean, wanted, 0.05 * wanted);
  }
}

TEST(Servegen, DrawsTheSameForTheSameSeedAndTheFirstRequestsOfAll) {
  const std::string text =
      servegen_client(R"([0,3,1,"Gamma",1,1])", "a") + servegen_client(R"([0,5,1,"Weibull",1,1])", "b");
  const auto times = [&](const ServegenDraw& draw) {
    std::vector<Nanos> out;
    for (const Conversation& one : servegen_trace(text, draw).conversations) out.push_back(one.turns[0].at);
    return out;
  };
  const std::vector<Nanos> all = times({});
  EXPECT_EQ(times({}), all);
  EXPECT_NE(times({.seed = 2}), all);
  EXPECT_EQ(times({.requests = 50}), std::vector<Nanos>(all.begin(), all.begin() + 50));
  const Trace one = servegen_trace(text, {.model = "b"});
  for (const Conversation& conversation : one.conversations) EXPECT_EQ(conversation.client, 1u);
  EXPECT_LT(one.requests(), all.size());
  const Trace later = servegen_trace(text, {.from_s = 300});
  EXPECT_NEAR(static_cast<double>(later.requests()), static_cast<double>(all.size()) / 2, 250.0);
  EXPECT_LT(later.conversations[0].turns[0].at, 10 * kNanosPerSecond) << "times count from there";
}

TEST(Servegen, NamesWhatIsWrong) {
  EXPECT_EQ(servegen_error(R"({"model":"m"})"),
            "s:1: trace: expected a list with at least one row, found nothing");
  EXPECT_EQ(
      servegen_error(servegen_client("[0,1]")),
      "s:1: trace[0]: expected [start_s, requests_per_s, cv_of_gaps, family, shape, scale], found [0,1]");
  const auto row = [](const std::string& one) { return servegen_error(servegen_client(one)); };
  EXPECT_EQ(row(R"([5,1,1,"Gamma",1,1],[5,1,1,"Gamma",1,1])"),
            "s:1: trace[1]: expected seconds from 0 to 10^9, later than the row before, found "
            "[5,1,1,\"Gamma\",1,1]");
  EXPECT_EQ(row(R"([5,-1,1,"Gamma",1,1])"),
            "s:1: trace[0]: expected 0 to 10^6 requests a second, found [5,-1,1,\"Gamma\",1,1]");
  EXPECT_EQ(row("[5,1,1,null,1,1]"),
            "s:1: trace[0]: expected the family Gamma or Weibull where there is a rate, found "
            "[5,1,1,null,1,1]");
  EXPECT_EQ(row(R"([5,1,1,"Gamma",0,1])"),
            "s:1: trace[0]: expected a shape from 0.01 to 100, found [5,1,1,\"Gamma\",0,1]");
  const std::string steps = R"({"trace":[[0,1,1,"Gamma",1,1]],"windows":)";
  EXPECT_EQ(servegen_error(steps + "[]}"), "s:1: windows: expected an object, found array");
  EXPECT_EQ(servegen_error(steps + R"({"x":{}}})"),
            "s:1: windows: expected names that are seconds from 0 to 10^9, found 'x'");
  EXPECT_EQ(servegen_error(steps + R"({"0":{}}})"),
            "s:1: windows.0.input_tokens: expected a list of [tokens, probability], found nothing");
  EXPECT_EQ(servegen_error(steps + R"({"0":{"input_tokens":[[0,1]],"output_tokens":[]}}})"),
            "s:1: windows.0.input_tokens: expected [tokens, probability], a whole number from 1 to 16777216 "
            "and 0 to 1, found [0,1]");
  EXPECT_EQ(servegen_error(steps + R"({"0":{"input_tokens":[[1,0]],"output_tokens":[]}}})"),
            "s:1: windows.0.input_tokens: expected probabilities above 0, found none");
  EXPECT_EQ(servegen_error(steps + R"({"9":{"input_tokens":[[1,1]],"output_tokens":[[1,1]]}}})"),
            "s:1: trace[0]: expected lengths in the window of its time where there is a rate, found none");
  const std::string many = servegen_client(R"([0,1000000,1,"Gamma",1,1])");
  EXPECT_EQ(servegen_error(many),
            "s: trace.requests: expected how many to draw, at most 10000000, found nothing, and rates that "
            "make some 6e+08");
  EXPECT_EQ(servegen_error(many, {.requests = 5}), "");
  EXPECT_EQ(servegen_error(many, {.model = "n"}), "s: trace.model: expected one of m, found 'n'");
  EXPECT_EQ(servegen_error(many, {.requests = 5, .from_s = 5000}),
            "s: trace.from_s: expected a time with requests after it, found 5000");
}

TEST(Servegen, DrawsFromTheFile) {
  const auto path = shared_data("servegen/clients.jsonl.gz");
  if (!path) GTEST_SKIP() << "the clients are not at $LOCI_SHARED_DATA";
  const Trace trace =
      read_source({.file = *path, .format = "servegen", .requests = 20'000, .model = "reason/deepseek-r1"})
          .value();
  EXPECT_EQ(trace.requests(), 20'000u);
  std::map<std::uint32_t, double> of_client;
  for (const Conversation& conversation : trace.conversations) ++of_client[*conversation.client];
  EXPECT_EQ(of_client.size(), 3u) << "two of five do not ask in the morning";
  const double seconds = static_cast<double>(trace.conversations.back().turns[0].at) / 1e9;
  EXPECT_NEAR(of_client[0] / seconds, 10.4, 1) << "client 35, from 8.3 requests a second to 11.5";
  const Status refused = read_source({.file = *path, .format = "servegen"}).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("trace.requests: expected how many to draw"), std::string::npos);
}

}  // namespace
}  // namespace loci::sim
