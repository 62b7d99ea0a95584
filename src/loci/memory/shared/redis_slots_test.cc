// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_slots.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loci/base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace loci {
namespace {

// As a Redis Cluster of three nodes says it, with a slot on its way, a replica and a node that has failed.
const std::string kNodesText =
    "07c37dfeb235213a872192d90877d0cd55635b91 127.0.0.1:30004@31004,,shard-id=69bc slave "
    "e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 0 1426238317239 4 connected\n"
    "67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1 10.0.0.2:30002@31002,cache-2.example master - 0 1426238316232 "
    "2 "
    "connected 5461-10922\n"
    "292f8b365bb7edb5e285caf0b7e6ddc7265d2f4f ::1:30003@31003 master,fail? - 0 1426238318243 3 connected "
    "10923-16382 16383\n"
    "6ec23923021cf3ffec47632106199cb7f496ce01 127.0.0.1:30005@31005 master,fail - 0 1426238316232 5 "
    "connected\n"
    "e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca :30001@31001 myself,master - 0 0 1 connected 0-5460 "
    "[93-<-292f8b365bb7edb5e285caf0b7e6ddc7265d2f4f] [77->-e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca]\n";

TEST(RedisSlots, AreThoseOfTheSpecification) {
  EXPECT_EQ(redis_slot("123456789"), 0x31c3u);
  EXPECT_EQ(redis_slot("somekey"), 11'058u);
  EXPECT_EQ(redis_slot("foo{hash_tag}"), 2'515u);
  EXPECT_EQ(redis_slot("bar{hash_tag}"), 2'515u);
  EXPECT_EQ(redis_slot("foo"), 12'182u);
  EXPECT_EQ(redis_slot(""), 0u);
  EXPECT_NE(redis_slot("a{}b"), redis_slot("c{}b")) << "an empty tag is none";
}

TEST(RedisSlots, AMapIsRead) {
  const std::vector<RedisSlotRange> wanted = {
      {.first = 0, .last = 5460, .place = {.host = "", .port = 30001}},
      {.first = 5461, .last = 10922, .place = {.host = "cache-2.example", .port = 30002}},
      {.first = 10923, .last = 16382, .place = {.host = "::1", .port = 30003}},
      {.first = 16383, .last = 16383, .place = {.host = "::1", .port = 30003}}};
  EXPECT_EQ(parse_redis_nodes(kNodesText).value(), wanted);
}

TEST(RedisSlots, WrongMapsAreRefused) {
  const auto one = [](const std::string& place, const std::string& slots) {
    return parse_redis_nodes("id " + place + " master - 0 0 1 connected " + slots + "\n").status().message();
  };
  EXPECT_EQ(one("h:1@2", "0-5"), "");
  for (const char* slots : {"5-4", "0-16384", "-1", "1-", "a", "0x1", "1-2-3", "99999999999"})
    EXPECT_NE(one("h:1@2", slots).find("line 1"), std::string::npos) << slots;
  for (const char* place : {"h", "h:", "h:0", "h:65536", "h h:1", "h\x01:1", "@1"})
    EXPECT_NE(one(place, "1"), "") << place;
  EXPECT_NE(one("h:1@2", "1-5 5-9").find("slot 5"), std::string::npos);
  for (const char* text :
       {"", "\n\n", "nonsense", "id h:1 master - 0 0 1", "id h:1@2 master - 0 0 1 connected"})
    EXPECT_FALSE(parse_redis_nodes(text).ok()) << text;
  EXPECT_FALSE(parse_redis_nodes(std::string(kRedisNodesBytesMax + 1, '\n')).ok());
  std::string many;
  for (std::size_t i = 0; i <= kRedisNodesMax; ++i)
    many += "id h:" + std::to_string(i + 1) + "@2 master - 0 0 1 connected " + std::to_string(i) + "\n";
  EXPECT_NE(parse_redis_nodes(many).status().message().find("1024 nodes"), std::string::npos);
}

TEST(RedisSlots, RedirectionsAreRead) {
  const auto moved = parse_redis_redirect("MOVED 3999 127.0.0.1:6381");
  ASSERT_TRUE(moved);
  EXPECT_FALSE(moved->is_for_once);
  EXPECT_EQ(moved->slot, 3999u);
  EXPECT_EQ(moved->place, (RedisPlace{.host = "127.0.0.1", .port = 6381}));
  EXPECT_TRUE(parse_redis_redirect("ASK 0 ::1:1")->is_for_once);
  EXPECT_EQ(parse_redis_redirect("MOVED 1 :6381")->place.host, "");
  for (const char* other : {"", "MOVED", "MOVED 1", "MOVED 16384 h:1", "MOVED x h:1", "MOVED 1 h:0",
                            "MOVED 1 h", "moved 1 h:1", "MOVED 1 h h:1", "ERR MOVED 1 h:1"})
    EXPECT_FALSE(parse_redis_redirect(other)) << other;
  EXPECT_TRUE(says_redis_away("CLUSTERDOWN Hash slot not served"));
  EXPECT_FALSE(says_redis_away("OOM command not allowed"));
}

// The fuzz target on changed maps.
TEST(RedisSlots, ChangedMapsAreReadOrRefused) {
  Random random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = kNodesText;
    for (std::uint64_t k = 1 + random.below(6); k > 0; --k) {
      const std::size_t at = random.below(text.size());
      if (random.below(2) == 0)
        text[at] = " -:,@[]0159\n{}"[random.below(14)];
      else
        text.erase(at, random.below(30));
      if (text.empty()) text = "x";
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
}

}  // namespace
}  // namespace loci
