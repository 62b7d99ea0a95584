// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/telemetry/metrics.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace loci {
namespace {

class MetricsTest : public testing::Test {
 protected:
  bool tells(const std::string& line) {
    return metrics_.scrape(std::nullopt, 0).find(line + "\n") != std::string::npos;
  }
  ServeMetrics metrics_{"1"};
};

TEST_F(MetricsTest, PredictionsAreComparedByPlanAndTier) {
  ContextSources sources;
  sources.device = 64;
  sources.restore = {.rule = RestoreRule::kAuto, .planned = 80 * kNanosPerMilli};
  metrics_.restored(sources, 100 * kNanosPerMilli);
  EXPECT_EQ(metrics_.scrape(std::nullopt, 0).find("loci_restore_error_ratio"), std::string::npos)
      << "no tier had any";
  sources.host = sources.disk = 32;
  metrics_.restored(sources, 100 * kNanosPerMilli);
  sources.restore.planned = 130 * kNanosPerMilli;
  metrics_.restored(sources, 100 * kNanosPerMilli);
  const std::string of = "from=\"disk\",plan=\"auto\"";
  EXPECT_TRUE(tells("loci_restore_error_ratio_count{" + of + "} 2"));
  EXPECT_TRUE(tells("loci_restore_error_ratio_bucket{" + of + ",le=\"0.1\"} 0"));
  EXPECT_TRUE(tells("loci_restore_error_ratio_bucket{" + of + ",le=\"0.4\"} 2"));
  sources.disk = 0;
  metrics_.restored(sources, 100 * kNanosPerMilli);
  sources.host = 0;
  sources.computed[static_cast<std::size_t>(MissReason::kTooSlow)] = 32;
  sources.restore.rule = RestoreRule::kRecompute;
  metrics_.restored(sources, 100 * kNanosPerMilli);
  EXPECT_TRUE(tells("loci_restore_error_ratio_count{from=\"host\",plan=\"auto\"} 1"));
  EXPECT_TRUE(tells("loci_restore_error_ratio_count{from=\"computed\",plan=\"recompute\"} 1"));
}

}  // namespace
}  // namespace loci
