// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/store_keeper.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <sstream>

#include "loci/serve/log_line.h"

namespace loci {
namespace {

class StoppedClock final : public Clock {
 public:
  Nanos now() const override { return at; }
  Nanos at = 0;
};

TEST(QuotaLog, EachTenantIsNamedAtOnceAndThenOnceInAPeriod) {
  std::ostringstream out;
  const auto logger =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out));
  logger->set_formatter(log_formatter(LogFormat::kText));
  const auto written = [&] {
    const std::string text = out.str();
    out.str("");
    return text;
  };
  StoppedClock clock;
  QuotaLog log(clock, 100, logger);
  const auto expect_told = [&](const char* tenant, int deleted) {
    const std::string line = written();
    EXPECT_TRUE(line.ends_with(fmt::format(" tenant={} deleted={}\n", tenant, deleted))) << line;
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  };
  log.made_room("ann", 2);
  expect_told("ann", 2);
  log.made_room("bob", 1);
  expect_told("bob", 1);
  clock.at = 99;
  log.made_room("ann", 3);
  log.made_room("ann", 4);
  EXPECT_EQ(written(), "");
  clock.at = 100;
  log.made_room("ann", 5);
  expect_told("ann", 12);
}

}  // namespace
}  // namespace loci
