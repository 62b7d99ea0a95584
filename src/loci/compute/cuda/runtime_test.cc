// SPDX-License-Identifier: Apache-2.0
// The runtime's promises about order, captures and memory, on both implementations.
#include "loci/compute/cuda/runtime_testing.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "loci/compute/cuda/check/device_testing.h"

namespace loci::cuda {
namespace {

class RuntimeTest : public DeviceTest {
 protected:
  // Long enough for a copy to overtake it, where nothing keeps the copy back.
  std::uint32_t rounds() const { return simulated() ? 10 : 1u << 22; }
  std::vector<std::uint32_t> ascending(std::uint32_t count) const {
    std::vector<std::uint32_t> values(count);
    std::iota(values.begin(), values.end(), 0u);
    return values;
  }
};

TEST_F(RuntimeTest, TellsOfTheDevice) {
  const DeviceProperties& properties = device().properties();
  EXPECT_FALSE(properties.name.empty());
  EXPECT_GE(properties.capability, 80u);
  EXPECT_GE(properties.multiprocessors, 1u);
  EXPECT_GE(properties.shared_bytes_max, 99u << 10);
  EXPECT_GT(device().free_bytes(), 0u);
  EXPECT_LE(device().free_bytes(), properties.memory_bytes);
  EXPECT_FALSE(Device::open(Device::count()).ok());
}

TEST_F(RuntimeTest, AStreamRunsInOrder) {
  const Memory values = upload(ascending(1000));
  for (int i = 0; i < 5; ++i) launch_count({values.as<std::uint32_t>(), 1000, rounds() / 16}, stream());
  const std::vector<std::uint32_t> after = download<std::uint32_t>(values);
  for (std::uint32_t i = 0; i < 1000; ++i) ASSERT_EQ(after[i], i + 5);
}

TEST_F(RuntimeTest, EventsOrderStreams) {
  const Memory values = upload(std::vector<std::uint32_t>(64, 7)), host = pinned(256);
  Stream copies(device(), Stream::Priority::kHigh);
  Event computed(device());
  EXPECT_TRUE(computed.done());  // it was never recorded
  launch_count({values.as<std::uint32_t>(), 64, rounds()}, stream());
  stream().record(computed);
  copies.wait(computed);
  copies.copy(host.data(), values.data(), 256);
  copies.synchronize();
  EXPECT_TRUE(computed.done());
  for (int i = 0; i < 64; ++i) ASSERT_EQ(host.as<std::uint32_t>()[i], 8u);
}

TEST_F(RuntimeTest, CopiesPiecesAndRows) {
  const std::vector<std::uint32_t> from = ascending(400);
  const Memory source = upload(from), pieces = filled(1600), rows = filled(1600);
  std::vector<CopyPiece> all;  // the hundreds backwards
  for (std::uint64_t i = 0; i < 4; ++i)
    all.push_back({pieces.data() + (3 - i) * 400, source.data() + i * 400, 400});
  all.push_back({pieces.data(), source.data(), 0});
  stream().copy_pieces(all);
  // Columns 2..5 of 40 rows of 10 become columns 0..3.
  stream().copy_rows(rows.data(), 40, source.data() + 8, 40, 16, 40);
  const std::vector<std::uint32_t> got = download<std::uint32_t>(pieces),
                                   got_rows = download<std::uint32_t>(rows);
  for (std::uint32_t i = 0; i < 400; ++i) {
    ASSERT_EQ(got[i], from[(3 - i / 100) * 100 + i % 100]);
    ASSERT_EQ(got_rows[i], i % 10 < 4 ? from[i] + 2 : 0xffffffffu);
  }
}

TEST_F(RuntimeTest, GraphsAreLaunchedAgain) {
  const Memory values = upload(std::vector<std::uint32_t>(100, 0)), host = pinned(400);
  ASSERT_TRUE(stream().begin_capture());
  launch_count({values.as<std::uint32_t>(), 100, 1}, stream());
  launch_count({values.as<std::uint32_t>(), 100, 1}, stream());
  stream().copy(host.data(), values.data(), 400);
  const Graph graph = stream().end_capture();
  ASSERT_TRUE(graph.present());
  EXPECT_EQ(download<std::uint32_t>(values)[0], 0u);  // captured, not run
  for (int i = 0; i < 3; ++i) stream().launch(graph);
  stream().synchronize();
  EXPECT_EQ(host.as<std::uint32_t>()[99], 6u);
}

TEST_F(RuntimeTest, TimedEventsTellTime) {
  const Memory values = upload(std::vector<std::uint32_t>(64, 0));
  Event begin(device(), Event::Timing::kTimed), end(device(), Event::Timing::kTimed);
  stream().record(begin);
  launch_count({values.as<std::uint32_t>(), 64, rounds()}, stream());
  stream().record(end);
  end.synchronize();
  EXPECT_GT(end.milliseconds_since(begin), 0.0);
}

TEST_F(RuntimeTest, MemoryThatIsNotThereIsNamedAndNothingIsLost) {
  const Result<Memory> memory = Memory::allocate(device(), MemoryKind::kDevice,
                                                 device().properties().memory_bytes * 2, "device_memory");
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(memory.status().field(), "device_memory");
  EXPECT_NE(memory.status().message().find(std::to_string(device().properties().memory_bytes * 2)),
            std::string::npos)
      << memory.status().message();
  const Memory values = upload(std::vector<std::uint32_t>(64, 1));
  launch_count({values.as<std::uint32_t>(), 64, 1}, stream());
  EXPECT_EQ(download<std::uint32_t>(values)[63], 2u);
}

}  // namespace
}  // namespace loci::cuda
