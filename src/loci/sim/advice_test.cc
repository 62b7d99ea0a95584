// SPDX-License-Identifier: Apache-2.0
// Compares advice with all possible runs on a small machine, and tests the forms of targets and files of
// prices.
#include "loci/sim/advice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

#include "loci/base/rounds_testing.h"
#include "loci/sim/report.h"

namespace loci::sim {
namespace {

using Json = nlohmann::json;

// Conversations that come back when others have taken their place in the device's memory.
Json scenario_json() {
  return Json::parse(R"({"model": {"parameters_billions": 1, "layers": 10, "width": 1024, "state_width": 512,
                                   "context_tokens": 8192},
                         "machine": "laptop",
                         "memory": {"device_tokens": 6000},
                         "workload": {"kind": "conversations", "conversations": 40, "rate": 0.02, "think_s": 400,
                                      "tokens_max": 6000,
                                      "shape": {"turns_mean": 4, "input_mean": 300, "reply_mean": 20, "sigma": 0.3}}})");
}

Json price_json(double host, double disk) {
  return {{"host_gb_hour", host},
          {"disk_gb_hour", disk},
          {"machine_hour", 1},
          {"host_gb", {0, 0.1, 0.2, 0.4, 0.8}},
          {"disk_gb", {0, 0.3, 0.6, 1.2}}};
}

AdviceInput input_of(Json json, const Json& prices, const char* target) {
  const Scenario scenario = parse_open_scenario(json, "test").value();
  AdviceInput input{.trace = load_trace(scenario).value(), .scenario = std::move(json), .file = "test"};
  input.prices = parse_prices(prices, "prices", state_gb(input.trace, scenario.world.model)).value();
  input.target = parse_ttft_target(target).value();
  return input;
}

Advice advice_of(const AdviceInput& input, std::size_t runs_max = SIZE_MAX) {
  std::atomic<bool> stop{false};
  std::size_t runs = 0;
  Result<Advice> advice = advise(input, stop, [&](const SizedRun&, std::size_t, const SizedRun* done) {
    if (done == nullptr && runs++ == runs_max) stop = true;
  });
  EXPECT_TRUE(advice.ok()) << advice.status().message();
  return std::move(advice).value();
}

Nanos ttft_of(const AdviceInput& input, double host_gb, double disk_gb) {
  Json json = input.scenario;
  json["memory"]["host_gb"] = host_gb;
  json["memory"]["disk_gb"] = disk_gb;
  const Scenario scenario = parse_scenario(json, "test").value();
  return ttft_within(run_world(input.trace, scenario.world).value(), 0, input.target.percent).value();
}

// A target between what the least memory gives and what the most does; 1 is the former.
Nanos between(const AdviceInput& input, double share) {
  const Nanos most = ttft_of(input, input.prices.host_gb.back(), input.prices.disk_gb.back());
  const Nanos least = ttft_of(input, 0, 0);
  EXPECT_LT(most, least);
  return most + static_cast<Nanos>(share * static_cast<double>(least - most));
}

TEST(Advice, IsTheCheapestOfAllRuns) {
  for (const auto& [host, disk, share] :
       {std::tuple(1.0, 0.1, 0.2), std::tuple(1.0, 0.1, 0.6), std::tuple(0.1, 1.0, 0.3)}) {
    if (kSlowed && share != 0.2) continue;
    AdviceInput input = input_of(scenario_json(), price_json(host, disk), "3s@p80");
    input.target.most = between(input, share);
    std::optional<std::tuple<double, double, double>> best;
    for (const double host_gb : input.prices.host_gb) {
      for (const double disk_gb : input.prices.disk_gb) {
        const std::tuple one(1 + host_gb * host + disk_gb * disk, host_gb, disk_gb);
        if (ttft_of(input, host_gb, disk_gb) <= input.target.most && (!best || one < *best)) best = one;
      }
    }
    const Advice advice = advice_of(input);
    ASSERT_TRUE(advice.cheapest.has_value() && best.has_value()) << share;
    EXPECT_EQ(advice.verdict, Verdict::kFound);
    const SizedRun& run = *advice.cheapest;
    EXPECT_EQ(std::tuple(run.cost_hour, run.host_gb, run.disk_gb), *best) << share;
    EXPECT_EQ(run.ttft, ttft_of(input, run.host_gb, run.disk_gb));
    for (const std::optional<SizedRun>& less : {advice.less_host, advice.less_disk}) {
      if (less) {
        EXPECT_FALSE(less->meets);
      }
    }
    EXPECT_LT(advice.runs, advice.pairs);
  }
}

TEST(Advice, SaysThatNoMemoryCan) {
  const Advice advice = advice_of(input_of(scenario_json(), price_json(1, 1), "1ms@p90"));
  EXPECT_EQ(advice.verdict, Verdict::kComputing);
  EXPECT_FALSE(advice.cheapest);
  ASSERT_TRUE(advice.all_on_device && advice.largest);
  EXPECT_FALSE(advice.all_on_device->meets);
  EXPECT_EQ(advice.runs, 2u);
}

TEST(Advice, TellsWhatIsNotOnOfferFromWhatCannotBe) {
  Json prices = price_json(1, 1);
  prices["host_gb"] = Json::array({0});
  prices["disk_gb"] = Json::array({0});
  AdviceInput input = input_of(scenario_json(), prices, "1s@p80");
  Json ample = input.scenario;
  ample["memory"]["device_tokens"] = 400'000u;
  const Scenario scenario = parse_scenario(ample, "test").value();
  const Nanos best = ttft_within(run_world(input.trace, scenario.world).value(), 0, 80).value();
  const Nanos worst = ttft_of(input, 0, 0);
  ASSERT_LT(best, worst);
  input.target.most = (best + worst) / 2;
  const Advice advice = advice_of(input);
  EXPECT_EQ(advice.verdict, Verdict::kNoneOnOffer);
  ASSERT_TRUE(advice.all_on_device);
  EXPECT_EQ(advice.all_on_device->ttft, best);
  const std::string text = advice_text(advice, input.prices, input.target);
  EXPECT_NE(text.find("no sizes on offer meet it; a device with memory for all state would"),
            std::string::npos)
      << text;
}

// With all state in the device's memory it stays there, whatever else the scenario says.
TEST(Advice, ADeviceForAllStateKeepsIt) {
  Json prices = price_json(1, 1);
  prices["host_gb"] = prices["disk_gb"] = Json::array({0});
  Json scenario = scenario_json();
  scenario["memory"]["device_keeps"] = false;
  AdviceInput input = input_of(scenario, prices, "1s@p80");
  Json ample = scenario;
  ample["memory"] = {{"device_tokens", 400'000u}};
  const WorldReport best = run_world(input.trace, parse_scenario(ample, "test")->world).value();
  const Nanos within = ttft_within(best, 0, 80).value();
  ample["memory"]["device_keeps"] = false;
  const WorldReport worst = run_world(input.trace, parse_scenario(ample, "test")->world).value();
  ASSERT_LT(within, ttft_within(worst, 0, 80).value());
  input.target.most = within;
  EXPECT_EQ(advice_of(input).verdict, Verdict::kNoneOnOffer);
}

// A run whose device cannot hold all state does not show that none could help.
TEST(Advice, DoesNotSayWhatATooSmallRunCannotShow) {
  AdviceInput input = input_of(scenario_json(), price_json(1, 1), "1ms@p90");
  input.device_tokens_max = 9'000;
  const Advice advice = advice_of(input);
  EXPECT_EQ(advice.verdict, Verdict::kNoneOnOffer);
  EXPECT_FALSE(advice.all_on_device);
  EXPECT_EQ(advice.runs, 2u);
  EXPECT_NE(
      advice_text(advice, input.prices, input.target).find("whether any memory would was not found out:"),
      std::string::npos);
}

// Each instance is a machine with memory of its own.
TEST(Advice, CountsEveryInstanceAndWhatPeersGive) {
  Json scenario = scenario_json();
  scenario["cluster"] = {{"instances", 3u}, {"policy", "least-load"}};
  AdviceInput input = input_of(scenario, price_json(1, 0.1), "1000s@p80");
  input.target.most = ttft_of(input, 0.8, 1.2);
  const Advice advice = advice_of(input);
  ASSERT_TRUE(advice.cheapest && advice.largest);
  for (const SizedRun& run : {*advice.cheapest, *advice.largest})
    EXPECT_NEAR(run.cost_hour, 3 * (1 + run.host_gb + 0.1 * run.disk_gb), 1e-9);
  EXPECT_GT(advice.largest->from[3], 0);
  const nlohmann::ordered_json json = advice_json(advice, input.prices, input.target);
  EXPECT_EQ(json["largest"]["hit_rate"]["of_tokens_peers"], advice.largest->from[3]);
  const std::array<double, kTiers>& from = advice.largest->from;
  const std::string cached =
      fmt::format("{:>10.1f}{:>10.1f}{:>10.1f}\n", 100 * (from[0] + from[1] + from[2] + from[3]),
                  100 * from[1], 100 * from[2]);
  EXPECT_NE(advice_text(advice, input.prices, input.target).find(cached), std::string::npos);
}

// Six requests of a token each have six blocks.
TEST(Advice, CountsStateInBlocks) {
  Trace trace;
  for (std::uint64_t i = 0; i < 6; ++i)
    trace.conversations.push_back({{{.pieces = {{i + 1, 1}}, .reply_tokens = 1}}});
  ModelShape model;
  model.layers = 10;
  model.state_width = 1000;
  EXPECT_GE(state_gb(trace, model), 6.0 * kBlockTokens * static_cast<double>(model.token_bytes()) / 1e9);
}

TEST(Advice, EndsWithWhatIsKnown) {
  AdviceInput input = input_of(scenario_json(), price_json(1, 0.1), "3s@p80");
  input.target.most = between(input, 1);
  const Advice nothing = advice_of(input, 0);
  EXPECT_EQ(nothing.verdict, Verdict::kUnknown);
  EXPECT_EQ(nothing.open, nothing.pairs);
  const Advice some = advice_of(input, 1);
  EXPECT_EQ(some.verdict, Verdict::kFoundSoFar);
  EXPECT_EQ(some.runs, 1u);
  ASSERT_TRUE(some.cheapest);
  EXPECT_EQ(some.cheapest->host_gb, 0.8);
  const nlohmann::ordered_json json = advice_json(some, input.prices, input.target);
  EXPECT_EQ(json["verdict"], "found_so_far");
  EXPECT_EQ(json["pairs"]["open"], some.open);
  EXPECT_EQ(json["less_host"], nullptr);
}

TEST(Advice, CountsRequestsWithoutAFirstTokenAsLate) {
  WorldReport report;
  for (int i = 1; i <= 10; ++i) {
    RequestRecord& record = report.requests.emplace_back();
    record.arrived = 5;
    record.first_token = 5 + i;
    record.outcome = Outcome::kDone;
  }
  EXPECT_EQ(ttft_within(report, 0, 90), 9);
  EXPECT_EQ(ttft_within(report, 5, 50), 8);
  report.requests[0].first_token = kNever;
  report.requests[0].outcome = Outcome::kRejected;
  EXPECT_EQ(ttft_within(report, 0, 90), 10);
  EXPECT_EQ(ttft_within(report, 0, 91), kNever);
  report.requests[0].outcome = Outcome::kTooLong;
  EXPECT_EQ(ttft_within(report, 0, 99), 10);
  EXPECT_EQ(ttft_within(report, 10, 90), std::nullopt);
}

TEST(Advice, ReadsTargets) {
  const Result<TtftTarget> target = parse_ttft_target("350ms@p99.9");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->most, 350 * kNanosPerMilli);
  EXPECT_EQ(target->percent, 99.9);
  for (const char* text : {"", "2s", "2s@90", "2s@p", "2s@p0", "2s@p100", "2s@p90x", "@p90", "0s@p90",
                           "-1s@p90", "2x@p90", "2s@pnan", "2s@p-5"}) {
    const Result<TtftTarget> wrong = parse_ttft_target(text);
    ASSERT_FALSE(wrong.ok()) << text;
    EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(wrong.status().message().find("as in 2s@p90, found '" + std::string(text)), std::string::npos);
  }
}

TEST(Advice, ReadsPricesAndRefusesWhatIsWrong) {
  const Prices offered =
      parse_prices(Json::parse(R"({"host_gb_hour": 1, "disk_gb_hour": 0})"), "p", 100).value();
  EXPECT_EQ(offered.host_gb, (std::vector<double>{0, 8, 16, 32, 64, 128}));
  EXPECT_EQ(offered.disk_gb, (std::vector<double>{0, 64, 128}));
  const std::pair<const char*, const char*> wrong[] = {
      {R"([])", "p: the file: expected an object, found array"},
      {R"({"disk_gb_hour": 1})", "p: host_gb_hour: expected a number from 0 to 1000000000, found nothing"},
      {R"({"host_gb_hour": -1, "disk_gb_hour": 1})",
       "p: host_gb_hour: expected a number from 0 to 1000000000, found -1"},
      {R"({"host_gb_hour": 1, "disk_gb_hour": 1, "host": 3})", "p: host: expected one of"},
      {R"({"host_gb_hour": 1, "disk_gb_hour": 1, "host_gb": []})", "p: host_gb: expected 1 to 64 numbers"},
      {R"({"host_gb_hour": 1, "disk_gb_hour": 1, "host_gb": [4, 4]})",
       "each more than the one before, found 4"},
      {R"({"host_gb_hour": 1, "disk_gb_hour": 1, "disk_gb": [1, "x"]})", R"(found "x")"},
      {R"({"host_gb_hour": 1, "disk_gb_hour": 1, "disk_gb": 7})", "found 7"},
  };
  for (const auto& [text, message] : wrong) {
    const Result<Prices> prices = parse_prices(Json::parse(text), "p", 1);
    ASSERT_FALSE(prices.ok()) << text;
    EXPECT_NE(prices.status().message().find(message), std::string::npos) << prices.status().message();
  }
}

// Before anything is run, by the file and the field that offer it.
TEST(Advice, OffersNothingOfATierThatABaselineLacks) {
  Json json = scenario_json();
  json["engine"]["baseline"] = "pensieve";
  const Scenario pensieve = parse_open_scenario(json, "f").value();
  const auto error = [&](const Json& prices) {
    return check_offer(parse_prices(prices, "p", 100).value(), "p", pensieve).message();
  };
  Json prices = price_json(1, 1);
  EXPECT_EQ(error(prices),
            "p: disk_gb: expected [0], since pensieve has no such tier, found sizes up to 1.2");
  prices.erase("disk_gb");
  EXPECT_EQ(error(prices), "p: disk_gb: expected [0], since pensieve has no such tier, found sizes up to 128")
      << "what is offered where the file lists nothing";
  prices["disk_gb"] = {0};
  EXPECT_EQ(error(prices), "");
  json["engine"]["baseline"] = "stateless";
  EXPECT_EQ(check_offer(parse_prices(prices, "p", 100).value(), "p", parse_open_scenario(json, "f").value())
                .message(),
            "p: host_gb: expected [0], since stateless has no such tier, found sizes up to 0.8");
}

TEST(Advice, TakesTheDevicesMemoryFromAKnownMachine) {
  Json json = {{"model", "llama2-13b"}, {"machine", "a100-80g"}, {"processors", 2u}};
  ASSERT_TRUE(parse_open_scenario(json, "f").ok());
  EXPECT_NEAR(json["memory"]["device_gb"].get<double>(), 0.9 * (160 - 26), 1e-9);
  Json small = {{"model", "llama2-70b"}, {"machine", "4090"}};
  EXPECT_EQ(parse_open_scenario(small, "f").status().message(),
            "f: memory.device_gb: expected the device's memory for state, found nothing, and the model's "
            "weights of "
            "138.0 GB leave nothing of the machine's 24.0 GB");
  Json chosen = {{"model", "llama2-13b"}, {"machine", "a100-80g"}, {"memory", {{"disk_gb", 5}}}};
  EXPECT_EQ(parse_open_scenario(chosen, "f").status().message(),
            "f: memory.disk_gb: expected nothing, since this size is what is asked, found 5");
  Json hidden = {{"model", "llama2-13b"}, {"machine", "a100-80g"}, {"engine", {{"hidden", "on"}}}};
  EXPECT_EQ(parse_open_scenario(hidden, "f").status().message(),
            "f: engine.hidden: expected off or auto, since sizes without a disk are run too, found \"on\"");
  hidden["engine"]["hidden"] = "auto";
  EXPECT_TRUE(parse_open_scenario(hidden, "f").ok());
}

TEST(Advice, NamesAScenarioThatIsNoObject) {
  for (const char* text : {"[]", "3", "null", "\"s\""}) {
    Json json = Json::parse(text);
    EXPECT_TRUE(
        parse_open_scenario(json, "f").status().message().starts_with("f: the file: expected an object"))
        << text;
  }
  Json list = {{"model", "llama2-13b"}, {"machine", "a100-80g"}, {"memory", Json::array()}};
  EXPECT_EQ(parse_open_scenario(list, "f").status().message(), "f: memory: expected an object, found array");
}

}  // namespace
}  // namespace loci::sim
