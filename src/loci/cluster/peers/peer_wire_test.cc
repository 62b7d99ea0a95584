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

TEST(PeerWire, OneVersionDecides) {
  EXPECT_EQ(kPeerAskPath, fmt::format("/peers/{}/ask", kPeerBytesVersion));
  EXPECT_EQ(kPeerReadPath, fmt::format("/peers/{}/read", kPeerBytesVersion));
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
  const PeerWants wants{
      .time_limit = 1500 * kNanosPerMilli, .rounds = 3, .wants = {{wire_key(1), 1}, {wire_key(2), 2}}};
  const std::string body = write_peer_wants(wants);
  const auto read = read_peer_wants(body, 2);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->time_limit, wants.time_limit);
  EXPECT_EQ(read->rounds, 3);
  ASSERT_EQ(read->wants.size(), 2u);
  EXPECT_EQ(read->wants[1].key, wire_key(2));
  EXPECT_EQ(read->wants[1].groups, 2);
  EXPECT_EQ(read_peer_wants(body, 1).status().field(), "groups") << "a group that is none";
  std::string none = body;
  none.back() = 0;
  EXPECT_EQ(read_peer_wants(none, 2).status().field(), "groups") << "nothing of a block";
  for (const char rounds : {'\0', '\x09', '\xff'}) {
    std::string many = body;
    many[4] = rounds;
    EXPECT_EQ(read_peer_wants(many, 2).status().field(), "rounds");
  }
  std::string long_wait = body;
  long_wait[2] = 1;
  EXPECT_EQ(read_peer_wants(long_wait, 2).status().field(), "time_limit");
  EXPECT_EQ(read_peer_wants(body.substr(0, 3), 2).status().field(), "time_limit");
  EXPECT_EQ(read_peer_wants(body.substr(0, body.size() - 1), 2).status().field(), "keys");
}

// What a reader hears of a reply that comes in pieces of so many bytes, from memory of another's or put into
// the reader's room as far as there is some.
enum class Put : std::uint8_t { kElsewhere, kInRoom };
struct Heard {
  std::vector<std::string> said;
  Status status;
  bool complete = false;
};
Heard hear(const std::string& reply, std::size_t piece, const std::vector<PeerWant>& wants,
           const std::vector<SharedGroup>& groups, Put put = Put::kElsewhere) {
  Heard heard;
  const auto say = [&heard](const char* what) {
    return [&heard, what](std::uint32_t index, std::uint8_t group) {
      heard.said.push_back(what + std::to_string(index) + "." + std::to_string(group));
    };
  };
  PeerPartReader reader(wants, groups,
                        {.layers =
                             [&heard](std::uint32_t index, std::uint8_t group, LayerRange layers,
                                      std::span<const std::byte> bytes) {
                               heard.said.push_back(fmt::format("layers {}.{} {}-{} of {}", index, group,
                                                                layers.begin, layers.end, bytes.size()));
                             },
                         .whole = say("whole "),
                         .damaged = say("damaged "),
                         .gone = say("gone ")});
  for (std::size_t at = 0; at < reply.size() && heard.status.ok();) {
    std::string_view bytes = std::string_view(reply).substr(at, piece);
    if (const std::span<std::byte> room = reader.room(); put == Put::kInRoom && !room.empty()) {
      bytes = bytes.substr(0, room.size());
      std::memcpy(room.data(), bytes.data(), bytes.size());
      bytes = {reinterpret_cast<const char*>(room.data()), bytes.size()};
    }
    at += bytes.size();
    heard.status = reader.feed(bytes);
  }
  heard.complete = reader.complete();
  return heard;
}

// `layers` of a group whose slices have 20 bytes.
std::string piece(const ChainKey& key, std::uint32_t index, std::uint8_t group, LayerRange layers) {
  const std::size_t bytes = 20 * (layers.end - layers.begin);
  const std::vector<std::byte> state = wire_bytes(bytes, static_cast<int>(index));
  PeerPieceHead head{
      .index = index, .group = group, .first = static_cast<std::uint16_t>(layers.begin), .bytes = bytes};
  check_peer_piece(key, group, head.first, state, head.check);
  return write_peer_piece_head(head) + std::string(reinterpret_cast<const char*>(state.data()), bytes);
}
const std::vector<SharedGroup> kTwoGroups = {{.layers = 5, .layer_slice_bytes = 20},
                                             {.layers = 2, .layer_slice_bytes = 20}};
std::string gone(std::uint32_t index, std::uint8_t group, std::uint16_t first = 0) {
  return write_peer_piece_head({.index = index, .group = group, .is_gone = true, .first = first});
}

using Said = std::vector<std::string>;

TEST(PeerWire, PartsInPiecesOfAnySize) {
  const std::vector<PeerWant> wants = {{wire_key(1), 3}, {wire_key(2), 1}};
  const std::string reply = piece(wire_key(2), 1, 0, {0, 5}) + gone(0, 1) + piece(wire_key(1), 0, 0, {0, 5});
  const Said expected = {"layers 1.0 0-5 of 100", "whole 1.0", "gone 0.1", "layers 0.0 0-5 of 100",
                         "whole 0.0"};
  for (const std::size_t size : {std::size_t{1}, std::size_t{31}, std::size_t{33}, reply.size()}) {
    for (const Put put : {Put::kElsewhere, Put::kInRoom}) {
      const Heard heard = hear(reply, size, wants, kTwoGroups, put);
      EXPECT_TRUE(heard.status.ok()) << heard.status.message();
      EXPECT_EQ(heard.said, expected);
      EXPECT_TRUE(heard.complete);
    }
  }
  EXPECT_FALSE(hear(reply.substr(0, reply.size() - 1), 50, wants, kTwoGroups).complete);
  EXPECT_EQ(hear(reply + "x", 50, wants, kTwoGroups).status.field(), "parts");
}

TEST(PeerWire, LayersInRounds) {
  const std::vector<PeerWant> wants = {{wire_key(1), 3}, {wire_key(2), 1}};
  const std::string reply = piece(wire_key(1), 0, 0, {0, 2}) + piece(wire_key(2), 1, 0, {0, 2}) +
                            piece(wire_key(1), 0, 1, {0, 2}) + piece(wire_key(1), 0, 0, {2, 4}) + gone(1, 0) +
                            piece(wire_key(1), 0, 0, {4, 5});
  const Heard cut = hear(reply, 50, wants, kTwoGroups);
  EXPECT_EQ(cut.said,
            (Said{"layers 0.0 0-2 of 40", "layers 1.0 0-2 of 40", "layers 0.1 0-2 of 40", "whole 0.1",
                  "layers 0.0 2-4 of 40", "gone 1.0", "layers 0.0 4-5 of 20", "whole 0.0"}));
  EXPECT_TRUE(cut.complete);
  const std::string other = piece(wire_key(1), 0, 0, {0, 2}) + piece(wire_key(2), 1, 0, {0, 2}) +
                            piece(wire_key(1), 0, 1, {0, 2}) + piece(wire_key(1), 0, 0, {2, 4}) +
                            piece(wire_key(2), 1, 0, {2, 5}) + piece(wire_key(1), 0, 0, {4, 5});
  for (const std::size_t size : {std::size_t{1}, std::size_t{31}, std::size_t{33}, other.size()}) {
    const Heard all = hear(other, size, wants, kTwoGroups);
    EXPECT_EQ(all.said, (Said{"layers 0.0 0-2 of 40", "layers 1.0 0-2 of 40", "layers 0.1 0-2 of 40",
                              "whole 0.1", "layers 0.0 2-4 of 40", "layers 1.0 2-5 of 60", "whole 1.0",
                              "layers 0.0 4-5 of 20", "whole 0.0"}));
    EXPECT_TRUE(all.complete);
  }
}

// The rest of the piece that has begun, whatever a larger one before it left.
TEST(PeerWire, TheRoomIsThatOfThePiece) {
  const std::vector<PeerWant> wants = {{wire_key(1), 1}, {wire_key(2), 1}};
  PeerPartReader reader(wants, kTwoGroups,
                        {.layers = [](std::uint32_t, std::uint8_t, LayerRange, std::span<const std::byte>) {},
                         .whole = [](std::uint32_t, std::uint8_t) {},
                         .damaged = [](std::uint32_t, std::uint8_t) {},
                         .gone = [](std::uint32_t, std::uint8_t) {}});
  EXPECT_TRUE(reader.room().empty());
  const std::string large = piece(wire_key(1), 0, 0, {0, 4}), small = piece(wire_key(2), 1, 0, {0, 1});
  EXPECT_TRUE(reader.feed(large.substr(0, 31)).ok());
  EXPECT_TRUE(reader.room().empty()) << "of what nobody knows yet";
  EXPECT_TRUE(reader.feed(large.substr(31, 11)).ok());
  EXPECT_EQ(reader.room().size(), 70u);
  EXPECT_TRUE(reader.feed(large.substr(42) + small.substr(0, 32)).ok());
  EXPECT_EQ(reader.room().size(), 20u);
  EXPECT_TRUE(reader.feed(small.substr(32)).ok());
  EXPECT_TRUE(reader.room().empty());
  EXPECT_FALSE(reader.feed(write_peer_piece_head({.index = 0, .group = 0, .first = 4, .bytes = 40})).ok());
  EXPECT_TRUE(reader.room().empty()) << "more than the part has";
}

TEST(PeerWire, WhatDoesNotVerifyIsDamaged) {
  const std::vector<PeerWant> wants = {{wire_key(1), 1}, {wire_key(2), 1}};
  std::string reply = piece(wire_key(1), 0, 0, {0, 5});
  reply[60] ^= 1;
  EXPECT_EQ(hear(reply, 64, wants, kTwoGroups).said, Said{"damaged 0.0"});
  EXPECT_EQ(hear(piece(wire_key(2), 0, 0, {0, 5}), 64, wants, kTwoGroups).said, Said{"damaged 0.0"})
      << "another block's state";
  // What follows of it is read over.
  std::string rounds = piece(wire_key(1), 0, 0, {0, 1});
  rounds[40] ^= 1;
  rounds +=
      piece(wire_key(1), 0, 0, {1, 4}) + piece(wire_key(2), 1, 0, {0, 5}) + piece(wire_key(1), 0, 0, {4, 5});
  for (const Put put : {Put::kElsewhere, Put::kInRoom}) {
    const Heard heard = hear(rounds, 64, wants, kTwoGroups, put);
    EXPECT_EQ(heard.said, (Said{"damaged 0.0", "layers 1.0 0-5 of 100", "whole 1.0"}));
    EXPECT_TRUE(heard.complete);
  }
  std::string moved = piece(wire_key(1), 0, 0, {0, 1});
  moved += piece(wire_key(1), 0, 0, {2, 3});
  moved[32 + 20 + 6] = 1;  // the layers behind the next ones, said to be the next ones
  EXPECT_EQ(hear(moved, 64, wants, kTwoGroups).said, (Said{"layers 0.0 0-1 of 20", "damaged 0.0"}));
}

TEST(PeerWire, WrongHeadsEndTheReplyBeforeMemoryIsTaken) {
  const std::vector<PeerWant> wants = {{wire_key(1), 1}, {wire_key(2), 2}};
  const auto field = [&](const PeerPieceHead& head) {
    return hear(write_peer_piece_head(head), 32, wants, kTwoGroups).status.field();
  };
  EXPECT_EQ(field({.index = 2, .group = 0, .bytes = 100}), "index");
  EXPECT_EQ(field({.index = 0, .group = 1, .bytes = 40}), "group") << "not wanted";
  EXPECT_EQ(field({.index = 0, .group = 7, .bytes = 40}), "group");
  EXPECT_EQ(field({.index = 0, .group = 0, .first = 1, .bytes = 40}), "first");
  EXPECT_EQ(field({.index = 0, .group = 0, .bytes = std::uint64_t{1} << 60}), "bytes");
  EXPECT_EQ(field({.index = 0, .group = 0, .bytes = 120}), "bytes") << "more layers than there are";
  EXPECT_EQ(field({.index = 0, .group = 0, .bytes = 30}), "bytes") << "half a layer";
  EXPECT_EQ(field({.index = 0, .group = 0, .bytes = 0}), "bytes") << "no layer";
  const std::vector<SharedGroup> large = {{.layers = 5, .layer_slice_bytes = 100 << 10},
                                          {.layers = 5, .layer_slice_bytes = 3 << 20}};
  const auto is_taken = [&](std::uint8_t group, std::uint64_t bytes) {
    const PeerPieceHead head{.index = 0, .group = group, .bytes = bytes};
    return hear(write_peer_piece_head(head), 32, {{wire_key(1), 3}}, large).status.ok();
  };
  EXPECT_TRUE(is_taken(0, 200 << 10));
  EXPECT_FALSE(is_taken(0, 300 << 10)) << "more than a reader holds";
  EXPECT_TRUE(is_taken(1, 3 << 20)) << "one layer at least";
  EXPECT_FALSE(is_taken(1, 6 << 20));
  EXPECT_EQ(field({.index = 0, .group = 0, .is_gone = true, .bytes = 100}), "bytes");
  std::string kind = write_peer_piece_head({.index = 0, .group = 0, .bytes = 100});
  kind[5] = 2;
  EXPECT_EQ(hear(kind, 32, wants, kTwoGroups).status.field(), "kind");
  EXPECT_EQ(hear(gone(0, 0) + gone(0, 0), 32, wants, kTwoGroups).status.field(), "group") << "said twice";
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
  EXPECT_EQ(message(read_peer_wants("abc", 1)), "expected 9 bytes at least, found 3");
  const std::string wants = write_peer_wants({.time_limit = 0, .wants = {{wire_key(1), 2}}});
  EXPECT_EQ(message(read_peer_wants(wants, 1)), "expected bits of 1 groups, one at least, found 2");
  const auto heard = [](const PeerPieceHead& head) {
    return hear(write_peer_piece_head(head), 32, {{wire_key(1), 1}}, kTwoGroups).status.message();
  };
  EXPECT_EQ(heard({.index = 1, .group = 0, .bytes = 100}), "expected a block below 1, found 1");
  EXPECT_EQ(heard({.index = 0, .group = 3, .bytes = 100}), "group 3 of block 0 is not wanted");
  EXPECT_EQ(heard({.index = 0, .group = 0, .bytes = 7}),
            "expected layers of 20 bytes each, 100 at most, found 7");
  EXPECT_EQ(heard({.index = 0, .group = 0, .first = 2, .bytes = 20}),
            "expected layer 0 of the group, found 2");
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
