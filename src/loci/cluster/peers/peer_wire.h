// SPDX-License-Identifier: Apache-2.0
// What members of a cluster say to one another about state: a question which blocks somebody has, and a read
// of some (docs/cluster.md#state-from-one-another has the bytes). Bodies of HTTP/1.1 requests and replies,
// little-endian.
//
// Whoever reads one of these trusts no count, length or order in it: all are checked against what was asked
// for before memory is taken. Values; thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/engine/core/plan.h"
#include "loci/memory/chain_key.h"

namespace loci {

inline constexpr std::string_view kPeerAskPath = "/peers/1/ask";
inline constexpr std::string_view kPeerReadPath = "/peers/1/read";
// Names the state that the asking server means (PeerServerOptions::state); who has another refuses, with
// both.
inline constexpr std::string_view kPeerStateHeader = "Loci-State";
inline constexpr std::size_t kPeerKeysMax = 4096;                        // of a question or a read
inline constexpr Nanos kPeerWaitMax = 10 * kNanosPerSecond;              // for a read's parts
inline constexpr std::size_t kPeerBodyBytesMax = 17 * kPeerKeysMax + 8;  // of a request

// A question: u32 count, and 16 bytes for each key. Errors of all below: kInvalidArgument naming the field.
std::string write_peer_question(std::span<const ChainKey> keys);
Result<std::vector<ChainKey>> read_peer_question(std::string_view body);
// Its answer: a byte for each key, whose bit g says that the server has, or is about to have, the part of
// group g.
std::string write_peer_answer(std::span<const std::uint8_t> groups);
Result<std::vector<std::uint8_t>> read_peer_answer(std::string_view body, std::size_t keys,
                                                   std::uint32_t group_count);

// A read: u32 milliseconds after which what has not begun to come is gone, u32 count, and for each block 16
// bytes key and u8 groups, of which there is one at least.
struct PeerWants {
  Nanos time_limit = 0;  // at most kPeerWaitMax
  std::vector<PeerWant> wants;
};
std::string write_peer_wants(const PeerWants& wants);
Result<PeerWants> read_peer_wants(std::string_view body, std::uint32_t group_count);

// Its reply: for each part that is wanted a head, in any order, and behind the head of a part that is there
// its bytes. A part is a block's state in one group of layers: all its layers, in the backend's layout.
struct PeerPartHead {
  std::uint32_t index = 0;  // of the block among the wants
  std::uint8_t group = 0;
  bool is_gone = false;
  std::uint64_t bytes = 0;   // that follow
  std::uint64_t check[2]{};  // of them, under the block's key
};
inline constexpr std::size_t kPeerPartHeadBytes = 32;
std::string write_peer_part_head(const PeerPartHead& head);
// XXH3, 128 bits, of the key, the group and the bytes. It finds a part that was assembled from wrong pieces;
// TLS makes sure that nobody changed it on the way.
void check_peer_part(const ChainKey& key, std::uint8_t group, std::span<const std::byte> bytes,
                     std::uint64_t check[2]);

// Reads such a reply as it arrives, and has one part in memory at a time.
class PeerPartReader {
 public:
  struct Sink {
    // A whole part that verified. The bytes are valid until it returns.
    std::function<void(std::uint32_t index, std::uint8_t group, std::span<const std::byte> bytes)> part;
    // It was there and did not verify: it counts as not there.
    std::function<void(std::uint32_t index, std::uint8_t group)> damaged;
    std::function<void(std::uint32_t index, std::uint8_t group)> gone;
  };

  // `part_bytes`: of each group. All that is wanted is told to the sink at most once.
  PeerPartReader(std::vector<PeerWant> wants, std::vector<std::uint64_t> part_bytes, Sink sink);

  // Errors: kDataLoss naming the field, after which nothing more is to be fed.
  Status feed(std::string_view piece);
  // Each part that was wanted has been told.
  bool complete() const { return left_ == 0; }

 private:
  Status begin_part();
  void end_part();

  std::vector<PeerWant> wants_;  // groups that have not been told
  const std::vector<std::uint64_t> part_bytes_;
  const Sink sink_;
  std::size_t left_ = 0;  // parts that have not been told
  std::string head_bytes_;
  PeerPartHead head_;
  bool in_part_ = false;
  std::vector<std::byte> part_;
  std::size_t filled_ = 0;
};

}  // namespace loci
