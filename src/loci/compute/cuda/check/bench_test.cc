// SPDX-License-Identifier: Apache-2.0
// The frame of the benchmarks: what a table says, and how the program ends.
#include "loci/compute/cuda/check/bench.h"

#include <gtest/gtest.h>

#include <sstream>

namespace loci::cuda {
namespace {

TEST(BenchTable, SaysWhichBarsAreMet) {
  std::ostringstream out;
  BenchTable table(out);
  table.begin();
  table.add({.name = "limits/copy", .measured = 4100, .unit = "GB/s"});
  table.add({.name = "a/fast enough", .measured = 3600, .unit = "GB/s", .limit = 4000, .bar = 0.9});
  table.add({.name = "a/slow", .measured = 3.25, .unit = "GB/s", .limit = 4000, .bar = 0.85, .note = "cold"});
  table.add({.name = "b/told", .measured = 0.5, .unit = "ms", .limit = 0.25});
  table.add({.name = "b/overlap",
             .measured = 10.4,
             .unit = "ms",
             .limit = 10,
             .bar = 1.05,
             .better = BenchRow::Better::kLower});
  table.add({.name = "c/without limit", .measured = 1, .unit = "ms", .bar = 1});
  table.fail("d/broken", Status(StatusCode::kUnavailable, "the device is lost"));
  EXPECT_EQ(table.passed(), 2u);
  EXPECT_EQ(table.failed(), 3u);
  table.end();
  EXPECT_EQ(out.str(),
            "                                                            measured  "
            "           limit  share      bar\n"
            "limits/copy                                                     4100 GB/s\n"
            "a/fast enough                                                   3600 G"
            "B/s         4000  0.900  >= 0.90  ok\n"
            "a/slow                                                          3.25 G"
            "B/s         4000  0.001  >= 0.85  MISSED  cold\n"
            "b/told                                                        0.5000 m"
            "s         0.2500  2.000\n"
            "b/overlap                                                      10.40 m"
            "s          10.00  1.040  <= 1.05  ok\n"
            "c/without limit                                                 1.00 m"
            "s                        >= 1.00  MISSED\n"
            "d/broken                                                              "
            "                                  FAILED  the device is lost\n"
            "2 passed, 3 failed\n");
}

TEST(BenchTable, AFigureThatIsNoneMeetsNoBar) {
  EXPECT_FALSE(meets_bar({.measured = 0.0 / 0.0, .limit = 1, .bar = 0.5}));
  EXPECT_FALSE(meets_bar({.measured = 1.0 / 0.0, .limit = 1, .bar = 0.5}));
  EXPECT_TRUE(meets_bar({.measured = 1.0 / 0.0, .limit = 1}));
}

TEST(Bench, FiltersAreBeginsOfNames) {
  const auto bench = std::move(Bench::make({.filters = {"attention/decode", "rows"}})).value();
  EXPECT_TRUE(bench->wanted("attention/"));
  EXPECT_TRUE(bench->wanted("attention/decode 8K"));
  EXPECT_FALSE(bench->wanted("attention/prompt"));
  EXPECT_TRUE(bench->wanted("rows/norm"));
  EXPECT_FALSE(bench->wanted("movement/"));
  EXPECT_GT(bench->limits().copy_gbps, 0);
  EXPECT_GT(bench->limits().matrix_tflops, 0);
  EXPECT_FALSE(Bench::make({.ordinal = 99}).ok());
}

}  // namespace
}  // namespace loci::cuda
