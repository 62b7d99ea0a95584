// SPDX-License-Identifier: Apache-2.0
// Fuzzes the messages of members about state (peer_wire.h, prefill_wire.h): nothing is read past a message's
// end, a message that parses is written again to the same bytes, and a reader reports each part once, and
// only parts that were given.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/cluster/peers/peer_wire.h"
#include "loci/cluster/peers/prefill_wire.h"

namespace {

void expect(bool condition) {
  if (!condition) __builtin_trap();
}

std::vector<std::byte> state_of(std::uint32_t index, std::size_t bytes) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(index + 1));
}

}  // namespace

// The first byte chooses how a reply is cut into pieces, the second where the rest is laid over a genuine
// one.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data + 2), size - 2);
  if (const auto keys = loci::read_peer_question(input); keys.ok())
    expect(loci::write_peer_question(*keys) == input);
  if (const auto wants = loci::read_peer_wants(input, 2); wants.ok())
    expect(loci::write_peer_wants(*wants) == input);
  if (const auto groups = loci::read_peer_answer(input, 3, 2); groups.ok())
    expect(loci::write_peer_answer(*groups) == input);
  // (What a text without names says of its chunks is dropped.)
  if (const auto work = loci::read_prefill(input); work.ok() && work->text)
    expect(loci::write_prefill(*work) == input);
  if (const auto news = loci::read_prefill_news(input); news)
    expect(loci::read_prefill_news(loci::write_prefill_news(*news).substr(
               0, loci::write_prefill_news(*news).size() - 1)) == news);

  const std::vector<loci::SharedGroup> groups = {{.layers = 3, .layer_slice_bytes = 16},
                                                 {.layers = 2, .layer_slice_bytes = 8}};
  std::vector<loci::PeerWant> wants(3);
  std::string genuine;
  for (std::uint32_t i = 0; i < wants.size(); ++i) {
    wants[i].key.bytes.fill(static_cast<std::uint8_t>(i));
    wants[i].groups = 3;
  }
  // In two rounds: a layer of each part, then the rest; the second block is gone.
  for (const bool is_first : {true, false}) {
    for (std::uint32_t i = 0; i < wants.size(); ++i) {
      for (std::uint8_t group = 0; group < 2; ++group) {
        const bool gone = i == 1;
        if (gone && !is_first) continue;
        const std::uint32_t layers = gone ? 0 : is_first ? 1 : groups[group].layers - 1;
        loci::PeerPieceHead head{.index = i,
                                 .group = group,
                                 .is_gone = gone,
                                 .first = static_cast<std::uint16_t>(is_first ? 0 : 1),
                                 .bytes = layers * groups[group].layer_slice_bytes};
        const std::vector<std::byte> state = state_of(i, head.bytes);
        if (!gone) loci::check_peer_piece(wants[i].key, group, head.first, state, head.check);
        genuine += loci::write_peer_piece_head(head);
        genuine.append(reinterpret_cast<const char*>(state.data()), state.size());
      }
    }
  }
  for (const bool over_genuine : {true, false}) {
    std::string reply = over_genuine ? genuine : std::string(input);
    const std::size_t from = over_genuine ? data[1] % reply.size() : 0;
    for (std::size_t i = 0; over_genuine && i < std::min(input.size(), reply.size() - from); ++i)
      reply[from + i] = static_cast<char>(reply[from + i] ^ input[i]);
    std::set<std::pair<std::uint32_t, std::uint8_t>> told;
    std::map<std::pair<std::uint32_t, std::uint8_t>, std::uint32_t> came;
    const auto tell = [&told](std::uint32_t index, std::uint8_t group) {
      expect(index < 3 && group < 2 && told.emplace(index, group).second);
    };
    loci::PeerPartReader reader(
        wants, groups,
        {.layers =
             [&](std::uint32_t index, std::uint8_t group, loci::LayerRange layers,
                 std::span<const std::byte> bytes) {
               expect(index < 3 && group < 2 && !told.contains({index, group}));
               std::uint32_t& next = came[{index, group}];
               expect(layers.begin == next && layers.end > next && layers.end <= groups[group].layers);
               next = layers.end;
               const std::vector<std::byte> state =
                   state_of(index, (layers.end - layers.begin) * groups[group].layer_slice_bytes);
               expect(std::equal(bytes.begin(), bytes.end(), state.begin(), state.end()));
             },
         .whole =
             [&](std::uint32_t index, std::uint8_t group) {
               tell(index, group);
               expect(came[{index, group}] == groups[group].layers);
             },
         .damaged = tell,
         .gone = tell});
    const std::size_t piece = data[0] % 64 + 1;
    bool ok = true;
    for (std::size_t at = 0; ok && at < reply.size();) {
      std::string_view bytes = std::string_view(reply).substr(at, piece);
      // Some are put where the reader wants them.
      if (const std::span<std::byte> room = reader.room(); data[0] >= 128 && !room.empty()) {
        bytes = bytes.substr(0, room.size());
        std::memcpy(room.data(), bytes.data(), bytes.size());
        bytes = {reinterpret_cast<const char*>(room.data()), bytes.size()};
      }
      at += bytes.size();
      ok = reader.feed(bytes).ok();
    }
    if (reader.complete()) expect(told.size() == 6);
    if (reply == genuine) expect(ok && reader.complete());
  }
  return 0;
}
