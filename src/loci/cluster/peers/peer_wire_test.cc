// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/peer_wire.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace loci {
namespace {

ChainKey wire_key(std::uint8_t byte) {
  ChainKey key;
  key.bytes.fill(byte);
  return key;
}

std::vector<std::byte> wire_bytes(std::size_t count, int seed) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  return bytes;
}

TEST(PeerWire, QuestionsAndAnswers) {
  const std::vector<ChainKey> keys = {wire_key(1), wire_key(2), wire_key(3)};
  const std::string body = write_peer_question(keys);
  ASSERT_EQ(body.size(), 4u + 48u);
  EXPECT_EQ(read_peer_question(body).value(), keys);
  for (const std::string& wrong : {std::string(), body.substr(0, 20), body + "x", std::string(4, '\0'),
                                   std::string("\xff\xff\xff\xff", 4) + body}) {
    const auto read = read_peer_question(wrong);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.status().field(), "keys");
  }
  const std::vector<std::uint8_t> groups = {0, 1, 3};
  EXPECT_EQ(read_peer_answer(write_peer_answer(groups), 3, 2).value(), groups);
  EXPECT_EQ(read_peer_answer(write_peer_answer(groups), 4, 2).status().field(), "groups") << "too few";
  EXPECT_EQ(read_peer_answer(write_peer_answer(groups), 3, 1).status().field(), "groups") << "no such group";
}

TEST(PeerWire, Wants) {
  const PeerWants wants{.time_limit = 1500 * kNanosPerMilli, .wants = {{wire_key(1), 1}, {wire_key(2), 2}}};
  const std::string body = write_peer_wants(wants);
  const auto read = read_peer_wants(body, 2);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->time_limit, wants.time_limit);
  ASSERT_EQ(read->wants.size(), 2u);
  EXPECT_EQ(read->wants[1].key, wire_key(2));
  EXPECT_EQ(read->wants[1].groups, 2);
  EXPECT_EQ(read_peer_wants(body, 1).status().field(), "groups") << "a group that is none";
  std::string none = body;
  none.back() = 0;
  EXPECT_EQ(read_peer_wants(none, 2).status().field(), "groups") << "nothing of a block";
  std::string long_wait = body;
  long_wait[2] = 1;
  EXPECT_EQ(read_peer_wants(long_wait, 2).status().field(), "time_limit");
  EXPECT_EQ(read_peer_wants(body.substr(0, 3), 2).status().field(), "time_limit");
  EXPECT_EQ(read_peer_wants(body.substr(0, body.size() - 1), 2).status().field(), "keys");
}

// What a reader hears of a reply that comes in pieces of so many bytes.
struct Heard {
  std::vector<std::string> said;
  Status status;
  bool complete = false;
};
Heard hear(const std::string& reply, std::size_t piece, const std::vector<PeerWant>& wants,
           const std::vector<std::uint64_t>& part_bytes) {
  Heard heard;
  const auto say = [&heard](const char* what) {
    return [&heard, what](std::uint32_t index, std::uint8_t group) {
      heard.said.push_back(what + std::to_string(index) + "." + std::to_string(group));
    };
  };
  PeerPartReader reader(
      wants, part_bytes,
      {.part =
           [&heard](std::uint32_t index, std::uint8_t group, std::span<const std::byte> bytes) {
             heard.said.push_back("part " + std::to_string(index) + "." + std::to_string(group) + " of " +
                                  std::to_string(bytes.size()));
           },
       .damaged = say("damaged "),
       .gone = say("gone ")});
  for (std::size_t at = 0; at < reply.size() && heard.status.ok(); at += piece)
    heard.status = reader.feed(std::string_view(reply).substr(at, piece));
  heard.complete = reader.complete();
  return heard;
}

std::string part(const ChainKey& key, std::uint32_t index, std::uint8_t group, std::size_t bytes) {
  const std::vector<std::byte> state = wire_bytes(bytes, static_cast<int>(index));
  PeerPartHead head{.index = index, .group = group, .bytes = bytes};
  check_peer_part(key, group, state, head.check);
  return write_peer_part_head(head) + std::string(reinterpret_cast<const char*>(state.data()), bytes);
}

TEST(PeerWire, PartsInPiecesOfAnySize) {
  const std::vector<PeerWant> wants = {{wire_key(1), 3}, {wire_key(2), 1}};
  const std::vector<std::uint64_t> part_bytes = {100, 40};
  const std::string reply = part(wire_key(2), 1, 0, 100) +
                            write_peer_part_head({.index = 0, .group = 1, .is_gone = true}) +
                            part(wire_key(1), 0, 0, 100);
  const std::vector<std::string> expected = {"part 1.0 of 100", "gone 0.1", "part 0.0 of 100"};
  for (const std::size_t piece : {std::size_t{1}, std::size_t{31}, std::size_t{33}, reply.size()}) {
    const Heard heard = hear(reply, piece, wants, part_bytes);
    EXPECT_TRUE(heard.status.ok()) << heard.status.message();
    EXPECT_EQ(heard.said, expected);
    EXPECT_TRUE(heard.complete);
  }
  EXPECT_FALSE(hear(reply.substr(0, reply.size() - 1), 50, wants, part_bytes).complete);
  EXPECT_EQ(hear(reply + "x", 50, wants, part_bytes).status.field(), "parts");
}

TEST(PeerWire, WhatDoesNotVerifyIsDamaged) {
  const std::vector<PeerWant> wants = {{wire_key(1), 1}, {wire_key(2), 1}};
  std::string reply = part(wire_key(1), 0, 0, 100);
  reply[60] ^= 1;
  EXPECT_EQ(hear(reply, 64, wants, {100}).said, std::vector<std::string>{"damaged 0.0"});
  EXPECT_EQ(hear(part(wire_key(2), 0, 0, 100), 64, wants, {100}).said,
            std::vector<std::string>{"damaged 0.0"})
      << "another block's state";
}

TEST(PeerWire, WrongHeadsEndTheReplyBeforeMemoryIsTaken) {
  const std::vector<PeerWant> wants = {{wire_key(1), 1}, {wire_key(2), 2}};
  const std::vector<std::uint64_t> part_bytes = {100, 40};
  const auto field = [&](const PeerPartHead& head) {
    return hear(write_peer_part_head(head), 32, wants, part_bytes).status.field();
  };
  EXPECT_EQ(field({.index = 2, .group = 0, .bytes = 100}), "index");
  EXPECT_EQ(field({.index = 0, .group = 1, .bytes = 40}), "group") << "not wanted";
  EXPECT_EQ(field({.index = 0, .group = 7, .bytes = 40}), "group");
  EXPECT_EQ(field({.index = 0, .group = 0, .bytes = std::uint64_t{1} << 60}), "bytes");
  EXPECT_EQ(field({.index = 0, .group = 0, .is_gone = true, .bytes = 100}), "bytes");
  std::string kind = write_peer_part_head({.index = 0, .group = 0, .bytes = 100});
  kind[5] = 2;
  EXPECT_EQ(hear(kind, 32, wants, part_bytes).status.field(), "kind");
  const std::string gone = write_peer_part_head({.index = 0, .group = 0, .is_gone = true});
  EXPECT_EQ(hear(gone + gone, 32, wants, part_bytes).status.field(), "group") << "said twice";
}

// As a fuzzer would: random bytes, and genuine messages with a few bytes changed.
TEST(PeerWire, ErrorsSayWhatIsAllowedAndFound) {
  const auto message = [](const auto& result) { return result.status().message(); };
  const std::string question = write_peer_question(std::vector<ChainKey>{wire_key(1)});
  EXPECT_EQ(message(read_peer_question("abc")), "expected 4 bytes at least, found 3");
  EXPECT_EQ(message(read_peer_question(std::string(4, '\0'))),
            fmt::format("expected 1 to {} keys, found 0", kPeerKeysMax));
  EXPECT_EQ(message(read_peer_question(question + "x")), "expected 16 bytes for 1 keys, found 17");
  EXPECT_EQ(message(read_peer_answer("\x01", 2, 1)), "expected a byte for each of 2 keys, found 1");
  EXPECT_EQ(message(read_peer_answer("\x04", 1, 2)), "expected bits of 2 groups, found 4");
  EXPECT_EQ(message(read_peer_wants("abc", 1)), "expected 8 bytes at least, found 3");
  const std::string wants = write_peer_wants({.time_limit = 0, .wants = {{wire_key(1), 2}}});
  EXPECT_EQ(message(read_peer_wants(wants, 1)), "expected bits of 1 groups, one at least, found 2");
  const auto heard = [](const PeerPartHead& head) {
    return hear(write_peer_part_head(head), 32, {{wire_key(1), 1}}, {100}).status.message();
  };
  EXPECT_EQ(heard({.index = 1, .group = 0, .bytes = 100}), "expected a block below 1, found 1");
  EXPECT_EQ(heard({.index = 0, .group = 3, .bytes = 100}), "group 3 of block 0 is not wanted");
  EXPECT_EQ(heard({.index = 0, .group = 0, .bytes = 7}), "expected a part of 100 bytes, found 7");
}

TEST(PeerWire, AnyBytes) {
  Random random(7);
  for (int run = 0; run < 3000; ++run) {
    std::vector<std::uint8_t> input(2 + random.below(400));
    const bool sparse = run % 2 == 0;
    for (std::size_t i = 0; i < input.size(); ++i)
      input[i] = i < 2 || !sparse || random.below(60) == 0 ? static_cast<std::uint8_t>(random.below(256)) : 0;
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}

}  // namespace
}  // namespace loci
