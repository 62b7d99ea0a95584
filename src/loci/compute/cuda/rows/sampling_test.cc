// SPDX-License-Identifier: Apache-2.0
// Compares sampling on the device with a plain version in float64, which does what engine/run/sampler.h says:
// it sorts the candidates and adds up their weights. The weights are the engine's own (exp_negative); sums
// are of another rounding, so at a boundary, and only within `slack` of it, either side is right.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "loci/base/exp_negative.h"
#include "loci/base/random.h"
#include "loci/compute/cuda/rows/rows.h"
#include "loci/compute/cuda/rows/rows_testing.h"

namespace loci::cuda {
namespace {

constexpr float kLeastLogit = -std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::uint32_t greatest(const std::vector<float>& logits) {
  std::uint32_t best = 0;
  for (std::uint32_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best] || (std::isnan(logits[best]) && !std::isnan(logits[i]))) best = i;
  }
  return best;
}

// The distribution that a row's draw is from: tokens in the draw's order, and how many of them may be kept.
struct Reference {
  bool greedy = false;
  std::uint32_t best = 0;
  std::vector<std::uint32_t> order;
  std::vector<double> before;  // [order + 1]: cumulative weights
  std::size_t kept_least = 0, kept_most = 0;
  double slack = 0;

  Reference(const std::vector<float>& logits, const SampleRow& row) {
    best = greatest(logits);
    greedy = row.temperature == 0 || row.top_k == 1 || !std::isfinite(logits[best]);
    if (greedy) return;
    std::vector<float> weights(logits.size(), 0.0f);
    const float scale = std::min(1.0f / row.temperature, 1e30f);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (!std::isnan(logits[i])) weights[i] = exp_negative((logits[i] - logits[best]) * scale);
      if (weights[i] > 0) order.push_back(static_cast<std::uint32_t>(i));
    }
    const bool whole = (row.top_k == 0 || row.top_k >= logits.size()) && row.top_p >= 1 && row.min_p <= 0;
    if (!whole) {
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return weights[a] > weights[b]; });
      if (row.top_k > 0) order.resize(std::min<std::size_t>(row.top_k, order.size()));
    }
    before.push_back(0);
    for (const std::uint32_t i : order) before.push_back(before.back() + static_cast<double>(weights[i]));
    slack = before.back() * 1e-12 + static_cast<double>(logits.size()) * 0x1p-43;
    kept_least = kept_most = order.size();
    if (row.top_p < 1) {
      const double wanted = before.back() * static_cast<double>(row.top_p);
      const auto reaching = [&](double mass) {
        const auto at = std::lower_bound(before.begin() + 1, before.end(), mass) - before.begin();
        return std::min(static_cast<std::size_t>(at), order.size());
      };
      kept_least = reaching(wanted - slack);
      kept_most = reaching(wanted + slack);
    }
    std::size_t heavy = 0;
    while (heavy < order.size() && weights[order[heavy]] >= row.min_p) ++heavy;
    if (!whole && row.min_p > 0) {
      kept_least = std::min(kept_least, heavy);
      kept_most = std::min(kept_most, heavy);
    }
  }

  bool may_be(std::uint32_t token, double uniform) const {
    if (greedy) return token == best;
    const auto at = static_cast<std::size_t>(std::find(order.begin(), order.end(), token) - order.begin());
    if (at >= kept_most) return false;
    for (std::size_t kept = kept_least; kept <= kept_most; ++kept) {
      const double drawn = uniform * before[kept];
      if (at < kept && before[at] - slack <= drawn && drawn <= before[at + 1] + slack) return true;
    }
    return false;
  }
};

class SamplingTest : public RowsTest {
 protected:
  std::vector<float> logits_of(std::uint32_t vocabulary, float spread) {
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> logits(vocabulary);
    // Multiples of 1/16: many are equal.
    for (float& logit : logits) logit = std::round(normal(random()) * 16) / 16;
    return logits;
  }
  // The samples of `rows`, in their order.
  std::vector<std::uint32_t> run(const std::vector<std::vector<float>>& logits, std::vector<SampleRow> rows) {
    const auto vocabulary = static_cast<std::uint32_t>(logits.front().size());
    std::vector<float> all;
    for (const std::vector<float>& row : logits) all.insert(all.end(), row.begin(), row.end());
    const auto count = static_cast<std::uint32_t>(rows.size());
    for (std::uint32_t i = 0; i < count; ++i) rows[i].sample = count - 1 - i;
    const Memory given = upload(all), counts = upload(std::vector<std::uint32_t>{count});
    rows.push_back({.logits_row = UINT32_MAX, .sample = UINT32_MAX});  // beyond the count: not looked at
    const Memory parameters = upload(rows);
    const Output<std::byte> workspace(*this, sample_workspace_bytes(count + 1, vocabulary));
    const Output<std::uint32_t> samples(*this, count);
    sample({.logits = given.as<float>(),
            .vocabulary = vocabulary,
            .rows = parameters.as<SampleRow>(),
            .count = counts.as<std::uint32_t>(),
            .count_max = count + 1,
            .samples = samples.data(),
            .workspace = workspace.data()},
           stream());
    std::vector<std::uint32_t> got = samples.values();
    workspace.values();  // looks at its guards
    std::reverse(got.begin(), got.end());
    return got;
  }
  void check(const std::vector<std::vector<float>>& logits, const std::vector<SampleRow>& rows) {
    const std::vector<std::uint32_t> got = run(logits, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const SampleRow& row = rows[i];
      const Reference reference(logits[row.logits_row], row);
      EXPECT_TRUE(reference.may_be(got[i], row.uniform))
          << fmt::format("{} of {}: temperature {}, top-k {}, top-p {}, min-p {}, uniform {}, greatest {}",
                         got[i], logits.front().size(), row.temperature, row.top_k, row.top_p, row.min_p,
                         row.uniform, reference.best);
    }
  }
  SampleRow random_row(std::uint32_t logits_row, std::uint32_t vocabulary) {
    SampleRow row{.logits_row = logits_row, .temperature = 1};
    constexpr float kTemperatures[] = {0.0f, 0.3f, 0.7f, 1.0f, 1.0f, 2.0f, 100.0f, 1e-3f, 1e-38f};
    constexpr float kTopP[] = {1.0f, 1.0f, 0.9f, 0.95f, 0.5f, 0.999f, 1e-6f, 0.999999f};
    constexpr float kMinP[] = {0.0f, 0.0f, 0.05f, 0.5f, 1.0f, 1e-30f};
    row.temperature = kTemperatures[below(9)];
    const std::uint32_t counts[] = {
        0, 0, 1, 2, 40, vocabulary - 1, vocabulary, vocabulary + 1, 1 + below(vocabulary)};
    row.top_k = counts[below(9)];
    row.top_p = kTopP[below(8)];
    row.min_p = kMinP[below(6)];
    row.uniform = below(10) == 0 ? 0.0 : below(10) == 0 ? 1 - 0x1p-53 : sample_uniform(3, random()());
    return row;
  }
};

TEST_F(SamplingTest, GreedyTakesTheGreatestAndTheLowestOfEquals) {
  for (const std::uint32_t vocabulary : {1u, 2u, 3u, 33u, 4096u, 4097u, 20001u}) {
    std::vector<std::vector<float>> logits;
    std::vector<SampleRow> rows;
    for (std::uint32_t i = 0; i < 6; ++i) {
      logits.push_back(logits_of(vocabulary, 0.1f));
      rows.push_back({.logits_row = i});
    }
    for (std::uint32_t i = 0; i < vocabulary; i += 2) logits[1][i] = kNaN;
    logits[2].assign(vocabulary, kNaN);
    logits[3].assign(vocabulary, kLeastLogit);
    logits[3][0] = kNaN;
    logits[4].assign(vocabulary, -0.0f);
    logits[4].back() = 0.0f;
    rows.push_back({.logits_row = 0, .temperature = 1, .top_k = 1, .uniform = 0.9});
    const std::vector<std::uint32_t> got = run(logits, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(got[i], greatest(logits[rows[i].logits_row])) << "row " << i << " of " << vocabulary;
    }
  }
}

TEST_F(SamplingTest, EveryParameter) {
  for (const std::uint32_t vocabulary : {1u, 2u, 5u, 31u, 64u, 1000u, 1024u, 1025u, 4100u, 9999u}) {
    std::vector<std::vector<float>> logits;
    for (const float spread : {0.02f, 1.0f, 3.0f, 10.0f}) logits.push_back(logits_of(vocabulary, spread));
    logits.push_back(std::vector<float>(vocabulary, 1.5f));
    logits.push_back(logits_of(vocabulary, 2.0f));
    for (std::uint32_t i = 0; i < vocabulary; ++i) {
      if (below(3) == 0) logits.back()[i] = coin() ? kLeastLogit : kNaN;
    }
    std::vector<SampleRow> rows;
    const int count = simulated() ? 40 : 300;
    for (int i = 0; i < count; ++i) {
      rows.push_back(random_row(below(static_cast<std::uint32_t>(logits.size())), vocabulary));
    }
    check(logits, rows);
  }
}

TEST_F(SamplingTest, LargeVocabularies) {
  for (const std::uint32_t vocabulary : {128256u, 262144u}) {
    std::vector<std::vector<float>> logits{logits_of(vocabulary, 2.5f), logits_of(vocabulary, 0.5f)};
    std::vector<SampleRow> rows;
    for (int i = 0; i < (simulated() ? 3 : 200); ++i) rows.push_back(random_row(below(2), vocabulary));
    rows.push_back({.logits_row = 1, .temperature = 1, .uniform = 0.7});
    rows.push_back({.logits_row = 1, .temperature = 1, .top_p = 0.99f, .uniform = 0.7});
    check(logits, rows);
  }
}

TEST_F(SamplingTest, DrawsFollowTheDistribution) {
  // Weights by std::exp: nothing here is shared with what is tested.
  const std::vector<float> logits{0.5f, -1, 2, 2, 0, -3, 1.25f, -0.5f, 1, -2};
  const int draws = simulated() ? 500 : 100000;
  const struct {
    SampleRow row;
    std::vector<std::uint32_t> kept;
  } cases[] = {
      {{.temperature = 0.8f}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
      {{.temperature = 0.8f, .top_k = 3}, {2, 3, 6}},
      {{.temperature = 1, .top_p = 0.8f}, {2, 3, 6, 8}},
      {{.temperature = 1, .min_p = 0.2f}, {2, 3, 6, 8, 0}},
      {{.temperature = 2, .top_k = 5, .top_p = 0.9f, .min_p = 0.45f}, {2, 3, 6, 8, 0}},
  };
  for (const auto& [row, kept] : cases) {
    std::vector<SampleRow> rows(draws, row);
    for (int i = 0; i < draws; ++i) rows[i].uniform = sample_uniform(11, static_cast<std::uint64_t>(i));
    std::vector<double> counts(logits.size(), 0), weights(logits.size(), 0);
    for (const std::uint32_t token : run({logits}, rows)) counts[token] += 1.0 / draws;
    for (const std::uint32_t i : kept)
      weights[i] = std::exp(logits[i] / static_cast<double>(row.temperature));
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double share = weights[i] / sum;
      EXPECT_NEAR(counts[i], share, 5 * std::sqrt(share * (1 - share) / draws)) << "token " << i;
    }
  }
}

TEST_F(SamplingTest, ARowsSampleIsItsOwn) {
  const std::uint32_t vocabulary = 3000;
  std::vector<std::vector<float>> logits;
  std::vector<SampleRow> rows;
  for (std::uint32_t i = 0; i < 20; ++i) {
    logits.push_back(logits_of(vocabulary, 2));
    rows.push_back(random_row(i, vocabulary));
  }
  const std::vector<std::uint32_t> all = run(logits, rows);
  EXPECT_EQ(run(logits, rows), all);
  for (std::uint32_t i = 0; i < rows.size(); ++i) {
    SampleRow alone = rows[i];
    alone.logits_row = 0;
    EXPECT_EQ(run({logits[i]}, {alone}), std::vector<std::uint32_t>{all[i]});
  }
}

}  // namespace
}  // namespace loci::cuda
