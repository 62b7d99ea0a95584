// SPDX-License-Identifier: Apache-2.0
// Fuzzes the messages of members about state (peer_wire.h): nothing is read past a message's end, a message
// that parses is written again to the same bytes, and a reader reports each part once, and only parts that
// were given.
#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/cluster/peers/peer_wire.h"

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

  const std::vector<std::uint64_t> part_bytes = {48, 16};
  std::vector<loci::PeerWant> wants(3);
  std::string genuine;
  for (std::uint32_t i = 0; i < wants.size(); ++i) {
    wants[i].key.bytes.fill(static_cast<std::uint8_t>(i));
    wants[i].groups = 3;
    for (std::uint8_t group = 0; group < 2; ++group) {
      loci::PeerPartHead head{
          .index = i, .group = group, .is_gone = i == 1, .bytes = i == 1 ? 0 : part_bytes[group]};
      const std::vector<std::byte> state = state_of(i, head.bytes);
      if (!head.is_gone) loci::check_peer_part(wants[i].key, group, state, head.check);
      genuine += loci::write_peer_part_head(head);
      genuine.append(reinterpret_cast<const char*>(state.data()), state.size());
    }
  }
  for (const bool over_genuine : {true, false}) {
    std::string reply = over_genuine ? genuine : std::string(input);
    const std::size_t from = over_genuine ? data[1] % reply.size() : 0;
    for (std::size_t i = 0; over_genuine && i < std::min(input.size(), reply.size() - from); ++i)
      reply[from + i] = static_cast<char>(reply[from + i] ^ input[i]);
    std::set<std::pair<std::uint32_t, std::uint8_t>> told;
    const auto tell = [&told](std::uint32_t index, std::uint8_t group) {
      expect(index < 3 && group < 2 && told.emplace(index, group).second);
    };
    loci::PeerPartReader reader(
        wants, part_bytes,
        {.part =
             [&](std::uint32_t index, std::uint8_t group, std::span<const std::byte> bytes) {
               tell(index, group);
               const std::vector<std::byte> state = state_of(index, part_bytes[group]);
               expect(std::equal(bytes.begin(), bytes.end(), state.begin(), state.end()));
             },
         .damaged = tell,
         .gone = tell});
    const std::size_t piece = data[0] % 64 + 1;
    bool ok = true;
    for (std::size_t at = 0; ok && at < reply.size(); at += piece)
      ok = reader.feed(std::string_view(reply).substr(at, piece)).ok();
    expect(reader.complete() == (told.size() == 6));
    if (reply == genuine) expect(ok && reader.complete());
  }
  return 0;
}
