// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/store_keeper.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <sstream>

#include "loci/serve/telemetry/log_line.h"

namespace loci {
namespace {

class StoppedClock final : public Clock {
 public:
  Nanos now() const override { return at; }
  Nanos at = 0;
};

TEST(EndedServers, HaveEndedWhereTheySeemToAtEveryLook) {
  constexpr Nanos kSecond = kNanosPerSecond;
  const std::vector<std::string> one = {"a"}, both = {"a", "b"}, none;
  EndedServers servers;
  const auto look = [&](Nanos at, const std::vector<std::string>& seem, Nanos took = 0) {
    return servers.look(at * kSecond, at * kSecond + took, seem);
  };
  EXPECT_EQ(look(100, one), none);
  EXPECT_EQ(look(102, both), none);
  EXPECT_EQ(look(104, both), none);
  EXPECT_EQ(look(106, both), one);
  EXPECT_EQ(look(108, {"b"}), (std::vector<std::string>{"b"}));
  // Somebody who is back begins anew.
  EXPECT_EQ(look(110, none), none);
  EXPECT_EQ(look(112, both), none);
  EXPECT_EQ(look(114, both), none);
  EXPECT_EQ(look(116, both), none);
  // Nothing is known of the time before a look that took long, or after looks that failed.
  EXPECT_EQ(look(118, both, 2 * kSecond), none);
  EXPECT_EQ(look(122, both), none);
  EXPECT_EQ(look(127, both), none);
  EXPECT_EQ(look(129, both), none);
  EXPECT_EQ(look(131, both), none);
  EXPECT_EQ(look(132, both), both);
}

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
