// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/run/sampler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

#include "loci/base/random.h"
#include "loci/base/rounds_testing.h"
#include "loci/engine/testing/sampler_testing.h"

namespace loci {
namespace {

constexpr std::uint32_t kVocabulary = 200;

std::vector<float> some_logits(std::uint64_t seed, float spread = 6.0f) {
  Random random(seed);
  std::vector<float> logits(kVocabulary);
  for (float& logit : logits) logit = static_cast<float>(random.unit() - 0.5) * spread;
  return logits;
}

Sampler make(SamplingParams params, std::vector<TokenId> prompt = {}, std::vector<TokenId> stop = {}) {
  EXPECT_TRUE(validate_sampling(params, kVocabulary).ok());
  return Sampler(std::move(params), prompt, std::move(stop), kVocabulary);
}

// The plain definition, in double: what each token's probability must be.
std::vector<double> reference(std::span<const float> logits, const SamplingParams& p) {
  struct Entry {
    std::uint32_t token;
    double weight;
  };
  std::vector<Entry> entries;
  const double greatest = *std::max_element(logits.begin(), logits.end());
  for (std::uint32_t i = 0; i < logits.size(); ++i) {
    entries.push_back({i, std::exp((double{logits[i]} - greatest) / double{p.temperature})});
  }
  std::sort(entries.begin(), entries.end(),
            [](auto& a, auto& b) { return a.weight != b.weight ? a.weight > b.weight : a.token < b.token; });
  if (p.top_k > 0 && p.top_k < entries.size()) entries.resize(p.top_k);
  double mass = 0, kept = 0;
  for (const Entry& e : entries) mass += e.weight;
  std::size_t count = 0;
  while (count < entries.size() && kept < mass * double{p.top_p}) kept += entries[count++].weight;
  entries.resize(std::max<std::size_t>(count, 1));
  std::erase_if(entries, [&](const Entry& e) { return e.weight < double{p.min_p}; });
  mass = 0;
  for (const Entry& e : entries) mass += e.weight;
  std::vector<double> probabilities(logits.size());
  for (const Entry& e : entries) probabilities[e.token] = e.weight / mass;
  return probabilities;
}

TEST(Sampler, GreedyTakesTheGreatestAndTheLowestIdAmongEquals) {
  auto logits = some_logits(1);
  logits[17] = logits[150] = 9.0f;
  Sampler sampler = make({.temperature = 0.0f});
  EXPECT_EQ(sampler.sample(logits)->token, TokenId(17));
}

// Pearson's chi-squared against the plain definition; the bound is passed by chance once in about 10^6.
TEST(Sampler, DrawsFromTheDefinedDistribution) {
  const std::vector<SamplingParams> cases = {
      {},
      {.temperature = 0.5f},
      {.top_k = 12},
      {.top_p = 0.6f},
      {.min_p = 0.2f},
      {.temperature = 1.7f, .top_k = 50, .top_p = 0.8f, .min_p = 0.05f},
  };
  for (std::size_t c = 0; c < cases.size(); ++c) {
    SCOPED_TRACE(c);
    const auto logits = some_logits(c + 10);
    const auto expected = reference(logits, cases[c]);
    SamplingParams params = cases[c];
    params.seed = c;
    Sampler sampler = make(params);
    constexpr int kDraws = test_rounds(40000);
    std::vector<int> seen(kVocabulary);
    for (int i = 0; i < kDraws; ++i) ++seen[sampler.sample(logits)->token.value];
    double chi = 0;
    int cells = 0;
    double rare_expected = 0, rare_seen = 0;
    for (std::uint32_t i = 0; i < kVocabulary; ++i) {
      if (expected[i] == 0) {
        EXPECT_EQ(seen[i], 0) << i;
      } else if (expected[i] * kDraws < 8) {
        rare_expected += expected[i] * kDraws;
        rare_seen += seen[i];
      } else {
        chi += std::pow(seen[i] - expected[i] * kDraws, 2) / (expected[i] * kDraws);
        ++cells;
      }
    }
    if (rare_expected > 0) {
      chi += std::pow(rare_seen - rare_expected, 2) / rare_expected;
      ++cells;
    }
    EXPECT_LT(chi, cells + 5.0 * std::sqrt(2.0 * cells) + 10.0);
  }
}

TEST(Sampler, SameSeedSameTokensOtherSeedOthers) {
  const auto run = [](std::uint64_t seed) {
    Sampler sampler = make({.seed = seed});
    std::vector<TokenId> tokens;
    for (std::uint64_t i = 0; i < 50; ++i) tokens.push_back(sampler.sample(some_logits(i))->token);
    return tokens;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
}

TEST(Sampler, ResumesAfterAReplysBeginning) {
  const auto reply = [](std::size_t said) {
    SamplingParams params{.repetition_penalty = 1.3f, .frequency_penalty = 0.7f, .presence_penalty = 0.4f};
    params.seed = 7;
    params.min_tokens = 20;
    const auto fresh = [&] { return make(params, {TokenId(5)}, {TokenId(3)}); };
    Sampler whole = fresh();
    std::vector<TokenId> tokens;
    for (std::uint64_t i = 0; i < 40; ++i) {
      if (i == said) {
        whole = fresh();
        whole.resume_after(tokens);
      }
      tokens.push_back(whole.sample(some_logits(i))->token);
    }
    return tokens;
  };
  const std::vector<TokenId> wanted = reply(40);
  for (const std::size_t said : {0, 1, 19, 20, 39}) EXPECT_EQ(reply(said), wanted) << said;
}

TEST(Sampler, HoldsBackStopTokensUntilTheMinimum) {
  auto logits = some_logits(2);
  logits[3] = 50.0f;
  Sampler sampler = make({.temperature = 0.0f, .min_tokens = 2}, {}, {TokenId(3)});
  EXPECT_NE(sampler.sample(logits)->token, TokenId(3));
  EXPECT_NE(sampler.sample(logits)->token, TokenId(3));
  EXPECT_EQ(sampler.sample(logits)->token, TokenId(3));
}

TEST(Sampler, BiasAndPenaltiesMoveLogits) {
  std::vector<float> logits(kVocabulary, 0.0f);
  logits[5] = 2.0f;
  logits[6] = 1.5f;
  logits[7] = 1.2f;
  Sampler biased = make({.temperature = 0.0f, .logit_bias = {{TokenId(9), 5.0f}, {TokenId(5), -100.0f}}});
  EXPECT_EQ(biased.sample(logits)->token, TokenId(9));
  Sampler repetition = make({.temperature = 0.0f, .repetition_penalty = 1.5f}, {TokenId(5)});
  EXPECT_EQ(repetition.sample(logits)->token, TokenId(6));  // 5 is in the prompt: 2 / 1.5
  EXPECT_EQ(repetition.sample(logits)->token, TokenId(5));  // now 6 has been said as well: 1.5 / 1.5
  Sampler presence = make({.temperature = 0.0f, .presence_penalty = 1.0f});
  EXPECT_EQ(presence.sample(logits)->token, TokenId(5));
  EXPECT_EQ(presence.sample(logits)->token, TokenId(6));
  EXPECT_EQ(presence.sample(logits)->token, TokenId(7));
  EXPECT_EQ(presence.sample(logits)->token, TokenId(5));
  Sampler frequency = make({.temperature = 0.0f, .frequency_penalty = 0.3f});
  const std::vector<std::uint32_t> said = {5, 5, 6, 5, 6, 7};
  for (const std::uint32_t token : said) EXPECT_EQ(frequency.sample(logits)->token, TokenId(token));
}

TEST(Sampler, ReportsTheModelsOwnLogprobs) {
  const auto logits = some_logits(4);
  Sampler sampler =
      make({.temperature = 0.0f, .logit_bias = {{TokenId(0), 100.0f}}, .top_logprobs = 3, .logprobs = true});
  const Sampled sampled = *sampler.sample(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  EXPECT_EQ(sampled.token, TokenId(0));
  EXPECT_NEAR(sampled.chosen.logprob, double{logits[0]} - std::log(sum), 1e-5);
  ASSERT_EQ(sampled.top.size(), 3u);
  EXPECT_EQ(logits[sampled.top[0].token.value], *std::max_element(logits.begin(), logits.end()));
  EXPECT_GE(sampled.top[0].logprob, sampled.top[1].logprob);
  EXPECT_GE(sampled.top[1].logprob, sampled.top[2].logprob);
}

TEST(Sampler, SurvivesExtremeLogits) {
  std::vector<float> logits(kVocabulary, -std::numeric_limits<float>::infinity());
  logits[42] = 3e38f;
  for (const float temperature : {0.0f, 1e-30f, 1.0f, 100.0f}) {
    Sampler sampler = make({.temperature = temperature, .top_p = 0.9f});
    EXPECT_EQ(sampler.sample(logits)->token, TokenId(42)) << temperature;
  }
}

// What a penalty that overflows, or a broken model, leaves of a row. The device does the same.
TEST(Sampler, RowsThatAreNotFiniteAreDrawnFromGreedily) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  struct Row {
    std::string_view name;
    std::vector<float> logits;
    std::optional<std::uint32_t> token;  // absent: any that is not NaN
  };
  std::vector<Row> rows = {{"one +Inf", some_logits(3), 71},
                           {"two +Inf", some_logits(3), 70},
                           {"one NaN", some_logits(3), std::nullopt},
                           {"all NaN", std::vector<float>(kVocabulary, kNaN), 0},
                           {"all -Inf", std::vector<float>(kVocabulary, -kInfinity), 0},
                           {"NaN and -Inf", std::vector<float>(kVocabulary, -kInfinity), 1}};
  rows[0].logits[71] = kInfinity;
  rows[1].logits[70] = rows[1].logits[71] = kInfinity;
  rows[2].logits[71] = rows[5].logits[0] = kNaN;
  const SamplingParams params[] = {{},
                                   {.temperature = 0.0f},
                                   {.min_p = 0.1f},
                                   {.top_k = 5},
                                   {.top_p = 0.9f},
                                   {.top_k = 5, .top_p = 0.9f},
                                   {.top_p = 0.9f, .min_p = 0.1f},
                                   {.top_k = 5, .min_p = 0.1f},
                                   {.temperature = 1e-30f, .top_k = 5, .top_p = 0.9f, .min_p = 1.0f}};
  for (const Row& row : rows) {
    for (SamplingParams one : params) {
      SCOPED_TRACE(fmt::format("{}: temperature {}, top-k {}, top-p {}, min-p {}", row.name, one.temperature,
                               one.top_k, one.top_p, one.min_p));
      one.logprobs = true;
      one.top_logprobs = 20;
      Sampler sampler = make(one);
      for (int draw = 0; draw < 20; ++draw) {
        const Sampled sampled = *sampler.sample(row.logits);
        if (row.token) {
          EXPECT_EQ(sampled.token, TokenId(*row.token));
          EXPECT_EQ(sampled.chosen.logprob, kLogprobMin) << "it is no distribution";
        } else {
          EXPECT_NE(sampled.token, TokenId(71));
          EXPECT_GT(sampled.chosen.logprob, -20.0f);
        }
        EXPECT_EQ(sampled.top.size(), 20u);
        for (const TokenLogprob& top : sampled.top) EXPECT_TRUE(std::isfinite(top.logprob));
      }
    }
  }
}

TEST(Sampler, APenaltyMayOverflow) {
  const SamplingParams params[] = {{.min_p = 0.1f}, {.top_k = 5}, {.top_p = 0.9f}, {}};
  for (SamplingParams one : params) {
    SCOPED_TRACE(fmt::format("top-k {}, top-p {}, min-p {}", one.top_k, one.top_p, one.min_p));
    one.repetition_penalty = 1e-40f;
    one.logprobs = true;
    std::vector<float> logits = some_logits(5);
    logits[33] = 2.0f;
    Sampler sampler = make(one, {TokenId(33)});
    for (int draw = 0; draw < 20; ++draw) {
      const Sampled sampled = *sampler.sample(logits);
      EXPECT_EQ(sampled.token, TokenId(33));
      EXPECT_GT(sampled.chosen.logprob, -20.0f) << "the model's own is finite";
    }
  }
}

// A token that the model makes impossible is reported with a number: JSON has no infinity.
TEST(Sampler, AnImpossibleTokenHasALogprob) {
  std::vector<float> logits = some_logits(6);
  logits[0] = -std::numeric_limits<float>::infinity();
  Sampler sampler = make({.forced = {TokenId(0)}, .logprobs = true});
  EXPECT_EQ(sampler.sample(logits)->chosen.logprob, kLogprobMin);
}

TEST(Sampler, RefusesWhatIsOutOfRangeByName) {
  const auto field = [](SamplingParams params) { return validate_sampling(params, kVocabulary).field(); };
  EXPECT_EQ(field({.temperature = -0.1f}), "temperature");
  EXPECT_EQ(field({.temperature = std::nanf("")}), "temperature");
  EXPECT_EQ(validate_sampling({.temperature = 100.5f}, kVocabulary).message(),
            "must be between 0 and 100, is 100.5");
  EXPECT_EQ(validate_sampling({.repetition_penalty = 200}, kVocabulary).message(),
            "must be above 0 and at most 100, is 200");
  EXPECT_EQ(field({.top_p = 0.0f}), "top_p");
  EXPECT_EQ(field({.top_p = 1.5f}), "top_p");
  EXPECT_EQ(field({.min_p = 2.0f}), "min_p");
  EXPECT_EQ(field({.repetition_penalty = 0.0f}), "repetition_penalty");
  EXPECT_EQ(field({.frequency_penalty = 2.5f}), "frequency_penalty");
  EXPECT_EQ(field({.presence_penalty = -2.5f}), "presence_penalty");
  EXPECT_EQ(field({.logit_bias = {{TokenId(kVocabulary), 1.0f}}}), "logit_bias");
  EXPECT_EQ(field({.logit_bias = {{TokenId(1), 101.0f}}}), "logit_bias");
  EXPECT_EQ(field({.top_logprobs = 21}), "top_logprobs");
}

// What the device may do, and what it is held to.
TEST(Sampler, TheDevicesSamplingIsTheHosts) {
  const SamplingParams params[] = {
      {.temperature = 0.0f},
      {.temperature = 0.8f, .seed = 5},
      {.temperature = 1.3f, .top_k = 20, .top_p = 0.9f, .min_p = 0.02f, .seed = 6},
      {.temperature = 1.0f, .seed = 7, .min_tokens = 4}};
  for (const SamplingParams& p : params) {
    Sampler sampler = make(p);
    ASSERT_TRUE(sampler.on_device());
    for (std::uint64_t draw = 0; draw < 40; ++draw) {
      const std::vector<float> logits = some_logits(draw);
      EXPECT_EQ(sample_token(logits, sampler.device_sampling(draw)), sampler.sample(logits)->token) << draw;
      EXPECT_TRUE(sampler.on_device()) << "for all of its life";
    }
  }
}

TEST(Sampler, TheHostSamplesWhatDependsOnTheTokensBefore) {
  const std::vector<TokenId> stop = {TokenId(3)};
  EXPECT_TRUE(make({}, {}, stop).on_device());
  EXPECT_FALSE(make({.repetition_penalty = 1.1f}).on_device());
  EXPECT_FALSE(make({.frequency_penalty = 0.1f}).on_device());
  EXPECT_FALSE(make({.presence_penalty = 0.1f}).on_device());
  EXPECT_FALSE(make({.logit_bias = {{TokenId(1), 1.0f}}}).on_device());
  EXPECT_FALSE(make({.logprobs = true}).on_device());
  Sampler held_back = make({.min_tokens = 1}, {}, stop);
  EXPECT_FALSE(held_back.on_device());
  held_back.sample(some_logits(1));
  held_back.sample(some_logits(2));
  EXPECT_FALSE(held_back.on_device()) << "for all of its life";
}

// A forced token says how likely it was, and changes nothing of what is drawn after it.
TEST(Sampler, ForcedTokensAreReportedAndNotCounted) {
  const std::vector<TokenId> forced = {TokenId(2), TokenId(3), TokenId(2)}, stop = {TokenId(3)};
  const SamplingParams params{
      .temperature = 0.0f, .frequency_penalty = 2.0f, .min_tokens = 1, .forced = forced, .logprobs = true};
  Sampler sampler = make(params, {}, stop);
  EXPECT_FALSE(sampler.on_device());
  for (std::uint64_t draw = 0; draw < forced.size(); ++draw) {
    const std::vector<float> logits = some_logits(draw);
    const auto sampled = sampler.sample(logits);
    ASSERT_TRUE(sampled.has_value());
    EXPECT_EQ(sampled->token, forced[draw]);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    EXPECT_NEAR(sampled->chosen.logprob, static_cast<double>(logits[forced[draw].value]) - std::log(sum),
                1e-4);
  }
  // A stop token is held back for min_tokens after them; the first likeliest is not penalised.
  std::vector<float> logits = some_logits(9);
  logits[3] = 100.0f;
  logits[2] = 99.0f;
  EXPECT_EQ(sampler.sample(logits)->token, TokenId(2));
  EXPECT_EQ(sampler.sample(logits)->token, TokenId(3));
}

TEST(Sampler, ForcedTokensTakeNoDraws) {
  const std::vector<TokenId> forced = {TokenId(2), TokenId(3), TokenId(2)};
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Sampler plain = make({.seed = seed});
    Sampler sampler = make({.seed = seed, .forced = forced, .logprobs = true});
    for (std::uint64_t draw = 0; draw < forced.size(); ++draw) sampler.sample(some_logits(draw));
    for (std::uint64_t draw = 0; draw < 20; ++draw) {
      const std::vector<float> logits = some_logits(draw);
      ASSERT_EQ(sampler.sample(logits)->token, plain.sample(logits)->token) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace loci
