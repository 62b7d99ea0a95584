// SPDX-License-Identifier: Apache-2.0
// Responses in the background: what a run keeps of its events.
#include "loci/serve/api/responses/background.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <string>

namespace loci {
namespace {

namespace asio = boost::asio;

// --- one run ---

std::string event_of(std::size_t bytes) { return "data: " + std::string(bytes - 8, 'x') + "\n\n"; }

TEST(BackgroundRun, TellsOfACancelThatCameBefore) {
  asio::io_context io;
  BackgroundRun run(io);
  run.cancel();
  int told = 0;
  run.on_cancel([&] { ++told; });
  EXPECT_EQ(told, 1);
  run.cancel();
  EXPECT_EQ(told, 1) << "once";
}

TEST(BackgroundRun, KeepsABoundedPartOfItsEvents) {
  asio::io_context io;
  BackgroundRun run(io);
  constexpr std::size_t kBytes = 1 << 20;
  for (int i = 0; i < 40; ++i) run.append(event_of(kBytes));
  EXPECT_LE(run.event_bytes(), (std::size_t{16} << 20) + kBytes);
}

TEST(BackgroundRun, NumbersEventsByTheirPlaceInTheWholeStream) {
  asio::io_context io;
  BackgroundRun run(io);
  constexpr std::size_t kBytes = 1 << 20;
  for (int i = 0; i < 40; ++i) run.append(event_of(kBytes));
  EXPECT_EQ(run.next_event(), 40u);
  EXPECT_TRUE(run.has_dropped(0));
  EXPECT_FALSE(run.has_dropped(39));
  EXPECT_FALSE(run.has_dropped(24)) << "the latest 16 MiB";
}

// The events of a reply's end show all of it: who reads along must not lose them.
TEST(BackgroundRun, KeepsAllThatWasAppendedLast) {
  asio::io_context io;
  BackgroundRun run(io);
  run.append(event_of(100));
  const std::string huge = event_of(std::size_t{12} << 20);
  run.append(huge + huge + huge);
  EXPECT_FALSE(run.has_dropped(1));
  run.append(event_of(100));
  EXPECT_TRUE(run.has_dropped(2));
  EXPECT_FALSE(run.has_dropped(3));
}

TEST(BackgroundRun, IsReadInParts) {
  asio::io_context io;
  BackgroundRun run(io);
  const std::string stream = event_of(10) + event_of(25) + event_of(9);
  run.append(stream);
  for (const std::size_t bytes_max : {1u, 7u, 10u, 35u, 1000u}) {
    BackgroundRun::Position at;
    std::string read, part;
    while (!(part = run.read(at, bytes_max)).empty()) {
      EXPECT_LE(part.size(), bytes_max);
      read += part;
    }
    EXPECT_EQ(read, stream) << bytes_max;
    EXPECT_EQ(at.event, 3u);
  }
  BackgroundRun::Position second{.event = 1};
  EXPECT_EQ(run.read(second, 1000), stream.substr(10));
  BackgroundRun::Position later{.event = 7};
  EXPECT_EQ(run.read(later, 1000), "") << "has not come yet";
}

}  // namespace
}  // namespace loci
