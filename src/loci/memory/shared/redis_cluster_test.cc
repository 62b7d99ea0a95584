// SPDX-License-Identifier: Apache-2.0
// The store against a Redis Cluster of three nodes that redirect, fall silent and lie. (A real one:
// tests/shared_cluster_test.py.)
#include "loci/memory/shared/redis_cluster.h"

#include <gtest/gtest.h>

#include <array>
#include <future>
#include <numeric>

#include "loci/memory/disk/disk_testing.h"
#include "loci/memory/shared/redis_store.h"
#include "loci/memory/shared/redis_testing.h"

namespace loci {
namespace {

constexpr std::size_t kNodes = 3;
constexpr std::uint64_t kBlocks = 40;
const std::vector<SharedGroup> kGroups = {{.layers = 5, .layer_slice_bytes = 60'000}};
constexpr Nanos kPatient = 3600 * kNanosPerSecond;

std::string bulk(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

class RedisClusterTest : public testing::Test {
 protected:
  using Special = std::function<std::optional<std::string>(std::size_t node, const RedisFake::Command&)>;

  RedisClusterTest() {
    for (std::uint32_t slot = 0; slot < kRedisSlots; ++slot) owners_[slot] = slot * kNodes / kRedisSlots;
    for (std::size_t n = 0; n < kNodes; ++n)
      nodes_[n].answer([this, n](const RedisFake::Command& command) { return answer(n, command); });
  }

  // A node's answer where it is not that of a server which has the key.
  std::optional<std::string> answer(std::size_t n, const RedisFake::Command& command) {
    Special special;
    {
      const MutexLock lock(mutex_);
      special = special_;
    }
    if (special) {
      if (auto text = special(n, command)) return text;
    }
    if (command[0] == "CLUSTER") return bulk(map());
    if (command.size() < 2 || command[0] == "AUTH") return std::nullopt;
    const std::uint32_t slot = redis_slot(command[1]);
    const std::size_t owner = owner_of(slot);
    if (owner == n) return std::nullopt;
    ++moved_;
    return redirect("MOVED", slot, owner);
  }
  std::string redirect(const std::string& kind, std::uint32_t slot, std::size_t node) const {
    return "-" + kind + " " + std::to_string(slot) + " 127.0.0.1:" + std::to_string(nodes_[node].port()) +
           "\r\n";
  }
  std::string map() {
    std::array<std::string, kNodes> lines;
    for (std::size_t n = 0; n < kNodes; ++n)
      lines[n] = "id 127.0.0.1:" + std::to_string(nodes_[n].port()) + "@1 master - 0 0 1 connected";
    const MutexLock lock(mutex_);
    for (std::uint32_t first = 0; first < kRedisSlots;) {
      std::uint32_t last = first;
      while (last + 1 < kRedisSlots && owners_[last + 1] == owners_[first]) ++last;
      lines[owners_[first]] += " " + std::to_string(first) + "-" + std::to_string(last);
      first = last + 1;
    }
    return std::accumulate(lines.begin(), lines.end(), std::string(),
                           [](const std::string& a, const std::string& b) { return a + b + "\n"; });
  }
  std::size_t owner_of(std::uint32_t slot) {
    const MutexLock lock(mutex_);
    return owners_[slot];
  }
  void be_special(Special special) {
    const MutexLock lock(mutex_);
    special_ = std::move(special);
  }
  // All that the one has is the other's from now on.
  void move_all(std::size_t from, std::size_t to) {
    std::map<std::string, std::string> values = nodes_[to].values();
    values.merge(nodes_[from].values());
    nodes_[to].set_values(std::move(values));
    nodes_[from].set_values({});
    const MutexLock lock(mutex_);
    std::replace(owners_.begin(), owners_.end(), from, to);
  }

  std::unique_ptr<SharedStore> open(std::size_t seed = 1) {
    RedisStoreOptions options{.address = {.host = "127.0.0.1", .port = nodes_[seed].port()},
                              .keys = {},
                              .groups = kGroups,
                              .time_to_live = 60 * kNanosPerSecond,
                              .connect_limit = kPatient,
                              .transfer_limit = kPatient};
    return open_redis_store(std::move(options), clock_).value();
  }
  static std::vector<std::byte> bytes_of(std::uint64_t seed) {
    return test_bytes(seed, {.layers = kGroups[0].layers, .layer_slice_bytes = kGroups[0].layer_slice_bytes});
  }
  static Status write(SharedStore& store, std::uint64_t seed) {
    std::promise<Status> done;
    store.write(0, {}, {.key = test_key(seed)}, bytes_of(seed),
                [&](Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }
  static void write_all(SharedStore& store) {
    for (std::uint64_t seed = 0; seed < kBlocks; ++seed) ASSERT_TRUE(write(store, seed).ok()) << seed;
  }
  // By block: whether the store says that it has it.
  static std::vector<std::uint8_t> ask(SharedStore& store) {
    std::vector<ChainKey> keys;
    for (std::uint64_t seed = 0; seed < kBlocks; ++seed) keys.push_back(test_key(seed));
    std::promise<std::vector<std::uint8_t>> answer;
    store.ask(std::move(keys), kPatient,
              [&](std::vector<std::uint8_t> groups) { answer.set_value(std::move(groups)); });
    return answer.get_future().get();
  }
  // By block: whether it came; one that came is what was written.
  static std::vector<std::uint8_t> read(SharedStore& store) {
    auto sink = std::make_shared<CollectingSink>(kBlocks);
    std::vector<BlockRead> items;
    for (std::uint64_t seed = 0; seed < kBlocks; ++seed)
      items.push_back({.group = 0, .slot = {}, .key = test_key(seed)});
    store.read(std::move(items), 0, sink);
    sink->wait();
    std::vector<std::uint8_t> came;
    for (std::uint64_t seed = 0; seed < kBlocks; ++seed) {
      came.push_back(sink->wait()[seed].status->ok() ? 1 : 0);
      EXPECT_TRUE(came.back() == 0 || sink->wait()[seed].bytes == bytes_of(seed)) << seed;
    }
    return came;
  }
  std::vector<std::uint8_t> of_nodes(const std::vector<std::size_t>& there) {
    std::vector<std::uint8_t> out;
    for (std::uint64_t seed = 0; seed < kBlocks; ++seed) {
      const std::size_t owner = owner_of(redis_slot(SharedFormat({}, kGroups).name(test_key(seed), 0)));
      out.push_back(std::find(there.begin(), there.end(), owner) != there.end() ? 1 : 0);
    }
    return out;
  }
  static const std::vector<std::uint8_t>& all() {
    static const std::vector<std::uint8_t> ones(kBlocks, 1);
    return ones;
  }
  template <class Condition>
  static void await(Condition condition) {
    while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  SystemClock clock_;
  Mutex mutex_;
  Special special_ GUARDED_BY(mutex_);
  std::array<std::size_t, kRedisSlots> owners_ GUARDED_BY(mutex_){};
  std::atomic<int> moved_{0};
  std::array<RedisFake, kNodes> nodes_;
};

TEST_F(RedisClusterTest, EachValueIsOnItsNode) {
  const auto store = open();
  write_all(*store);
  for (std::size_t n = 0; n < kNodes; ++n) {
    EXPECT_GT(nodes_[n].values().size(), 0u) << "40 blocks over three nodes";
    for (const auto& [name, value] : nodes_[n].values()) EXPECT_EQ(owner_of(redis_slot(name)), n);
  }
  EXPECT_EQ(ask(*store), all());
  EXPECT_EQ(read(*store), all());
  EXPECT_EQ(moved_, 0) << "the map was read before";
  EXPECT_EQ(store->stats().failures_total, 0u);
}

// The texts that measure a single server would each go to another node, and one that they are slow to come
// from would be left alone from the start.
TEST_F(RedisClusterTest, TheStartMeasuresNoNode) {
  write_all(*open());
  be_special([](std::size_t, const RedisFake::Command& command) -> std::optional<std::string> {
    if (command[0] == "ECHO") return std::string();
    return std::nullopt;
  });
  const auto store = open();
  EXPECT_FALSE(store->first_rate().has_value());
  EXPECT_EQ(ask(*store), all());
  for (const RedisFake& node : nodes_) EXPECT_EQ(node.commands("ECHO"), 0u);
}

TEST_F(RedisClusterTest, MovedSlotsAreFollowedAndLearned) {
  const auto store = open();
  write_all(*store);
  move_all(0, 2);
  EXPECT_EQ(read(*store), all()) << "by redirections";
  EXPECT_GT(moved_, 0);
  EXPECT_EQ(ask(*store), all());
  await([&] {  // the map is read again
    const int before = moved_;
    return ask(*store) == all() && moved_ == before;
  });
  EXPECT_EQ(store->stats().failures_total, 0u);
}

TEST_F(RedisClusterTest, SlotsOnTheirWayAreAskedForOnce) {
  const auto store = open();
  write_all(*store);
  // Node 0's values have gone ahead to node 2, which gives them to those alone who say ASKING.
  std::map<std::string, std::string> there = nodes_[2].values();
  for (const auto& [name, value] : nodes_[0].values()) there[name] = value;
  nodes_[2].set_values(there);
  nodes_[0].set_values({});
  std::atomic<int> asking{0};
  be_special([&](std::size_t n, const RedisFake::Command& command) -> std::optional<std::string> {
    if (command[0] == "ASKING") return ++asking, "+OK\r\n";
    if (command.size() < 2 || command[0] == "CLUSTER" || owner_of(redis_slot(command[1])) != 0) return {};
    if (n == 0) return redirect("ASK", redis_slot(command[1]), 2);
    if (n == 2 && asking > 0) {
      --asking;
      const std::string& value = there[command[1]];
      if (command[0] == "STRLEN") return ":" + std::to_string(value.size()) + "\r\n";
      if (command[0] == "EXPIRE") return ":1\r\n";
      const auto first = static_cast<std::size_t>(std::atoll(command[2].c_str()));
      const auto last = static_cast<std::size_t>(std::atoll(command[3].c_str()));
      return bulk(value.substr(first, last - first + 1));
    }
    return {};
  });
  EXPECT_EQ(ask(*store), all());
  EXPECT_EQ(read(*store), all());
  EXPECT_EQ(asking, 0) << "one for each command";
  EXPECT_EQ(moved_, 0) << "the map stays as it is";
}

// As long as any node that says nothing; not for the whole time that a load may take.
TEST_F(RedisClusterTest, ARedirectionToASilentNodeIsAMissSoon) {
  const auto store = open();
  write_all(*store);
  be_special([&](std::size_t n, const RedisFake::Command& command) -> std::optional<std::string> {
    if (command[0] == "CLUSTER" || command[0] == "PING") return {};
    if (n == 2) return "";
    if (command.size() < 2 || owner_of(redis_slot(command[1])) != 0) return {};
    return redirect("ASK", redis_slot(command[1]), 2);
  });
  const Nanos begun = clock_.now();
  EXPECT_EQ(read(*store), of_nodes({1}));
  EXPECT_LT(clock_.now() - begun, kPatient / 2);
  be_special(nullptr);
}

TEST_F(RedisClusterTest, ASilentNodesBlocksAreAMissAndTheOthersAreThere) {
  const auto store = open();
  write_all(*store);
  be_special([](std::size_t n, const RedisFake::Command&) {
    return n == 2 ? std::optional<std::string>("") : std::nullopt;
  });
  EXPECT_EQ(read(*store), of_nodes({0, 1}));
  EXPECT_EQ(ask(*store), of_nodes({0, 1}));
  EXPECT_EQ(store->stats().failures_total, 0u) << "the store is not left alone for one node";
  for (std::uint64_t seed = 0; seed < kBlocks; ++seed) {
    const Status written = write(*store, seed);
    EXPECT_EQ(written.ok(), of_nodes({0, 1})[seed] == 1) << seed;
    EXPECT_TRUE(written.ok() || written.code() == StatusCode::kResourceExhausted) << seed;
  }
  // A deletion waits for the node.
  std::uint64_t its = 0;
  while (of_nodes({2})[its] == 0) ++its;
  const std::size_t had = nodes_[2].values().size();
  store->change({.kind = RecordChange::Kind::kForget, .entry = {.key = test_key(its)}});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(nodes_[2].values().size(), had);
  be_special(nullptr);
  await([&] { return nodes_[2].values().size() == had - 1; });
  std::vector<std::uint8_t> left = all();
  left[its] = 0;
  await([&] { return ask(*store) == left; });
  EXPECT_EQ(read(*store), left);
  EXPECT_EQ(store->stats().deletions_dropped_total, 0u);
  EXPECT_TRUE(store->stats().up);
}

TEST_F(RedisClusterTest, ANodeThatCannotServeIsAMiss) {
  const auto store = open();
  write_all(*store);
  be_special([](std::size_t n, const RedisFake::Command& command) {
    return n == 0 && command.size() > 1 && command[0] != "CLUSTER"
               ? std::optional<std::string>("-CLUSTERDOWN Hash slot not served\r\n")
               : std::nullopt;
  });
  EXPECT_EQ(ask(*store), of_nodes({1, 2}));
  EXPECT_EQ(read(*store), of_nodes({1, 2}));
  be_special(nullptr);
  EXPECT_EQ(ask(*store), all());
  EXPECT_EQ(store->stats().failures_total, 0u);
}

TEST_F(RedisClusterTest, GarbageFromOneNodeIsItsOwn) {
  const auto store = open();
  write_all(*store);
  be_special([](std::size_t n, const RedisFake::Command& command) {
    return n == 1 && command.size() > 1 ? std::optional<std::string>("!!garbage\r\n") : std::nullopt;
  });
  EXPECT_EQ(read(*store), of_nodes({0, 2}));
  EXPECT_EQ(ask(*store), of_nodes({0, 2}));
  be_special(nullptr);
  await([&] { return ask(*store) == all(); });
}

TEST_F(RedisClusterTest, RedirectionsInACircleEnd) {
  const auto store = open();
  write_all(*store);
  std::atomic<int> said{0};
  be_special([&](std::size_t n, const RedisFake::Command& command) -> std::optional<std::string> {
    if (command.size() < 2 || command[0] == "CLUSTER" || n == 2) return {};
    if (owner_of(redis_slot(command[1])) == 2) return {};
    ++said;
    return redirect("MOVED", redis_slot(command[1]), 1 - n);
  });
  EXPECT_EQ(ask(*store), of_nodes({2}));
  EXPECT_LE(said, static_cast<int>(6 * kBlocks)) << "five for each question, and the question itself";
}

TEST_F(RedisClusterTest, RedirectionsToNobodyEnd) {
  const auto store = open();
  write_all(*store);
  std::atomic<int> port{1};
  be_special([&](std::size_t n, const RedisFake::Command& command) -> std::optional<std::string> {
    if (command.size() < 2 || command[0] == "CLUSTER" || n != 0) return {};
    return "-MOVED 1 127.0.0.1:" + std::to_string(++port) + "\r\n";
  });
  EXPECT_EQ(ask(*store), of_nodes({1, 2}));
  be_special(nullptr);
  await([&] { return ask(*store) == all(); });
}

TEST_F(RedisClusterTest, AStoreMaySayLaterThatItIsACluster) {
  be_special([](std::size_t, const RedisFake::Command& command) {
    return command[0] == "CLUSTER" ? std::optional<std::string>("-ERR not yet\r\n") : std::nullopt;
  });
  const auto store = open();
  be_special(nullptr);
  await([&] {  // the first questions find out
    for (std::uint64_t seed = 0; seed < kBlocks; ++seed) (void)write(*store, seed).ok();
    return ask(*store) == all();
  });
  EXPECT_EQ(read(*store), all());
}

TEST_F(RedisClusterTest, WrongMapsKeepTheOneBefore) {
  const auto store = open();
  write_all(*store);
  be_special([this](std::size_t n, const RedisFake::Command& command) -> std::optional<std::string> {
    if (command[0] != "CLUSTER") return {};
    if (n == 0) return "*1\r\n:5\r\n";
    return bulk(map() + map());
  });
  move_all(0, 1);  // makes it want a map
  EXPECT_EQ(ask(*store), all());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(read(*store), all());
}

}  // namespace
}  // namespace loci
