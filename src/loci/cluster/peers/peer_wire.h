// SPDX-License-Identifier: Apache-2.0
// The messages of members of a cluster about state: a question which blocks a member has, and a read of
// blocks (docs/cluster.md#state-from-one-another has the bytes). They are bodies of HTTP/1.1 requests and
// replies, little-endian.
//
// Readers trust no count, length or order in a message: all are checked against the request before memory is
// taken. Values; thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/compute/pass.h"
#include "loci/engine/core/plan.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/shared/shared_format.h"

namespace loci {

// Of all these messages. It is a part of the state's name (below), so that members with another version are
// refused, and is in both paths, for people. (The feed's messages have a version of their own.)
inline constexpr std::uint32_t kPeerBytesVersion = 3;
inline constexpr std::string_view kPeerAskPath = "/peers/3/ask";
inline constexpr std::string_view kPeerReadPath = "/peers/3/read";
// Names the state that the asking server means (PeerServerOptions::state). A server with another state
// refuses, and names both.
inline constexpr std::string_view kPeerStateHeader = "Loci-State";
inline constexpr std::size_t kPeerKeysMax = 4096;                        // in a question or a read
inline constexpr Nanos kPeerWaitMax = 10 * kNanosPerSecond;              // for a read's parts
inline constexpr std::size_t kPeerBodyBytesMax = 17 * kPeerKeysMax + 9;  // in a request

// A question: u32 count, then 16 bytes for each key. Errors of all readers below: kInvalidArgument naming the
// field.
std::string write_peer_question(std::span<const ChainKey> keys);
Result<std::vector<ChainKey>> read_peer_question(std::string_view body);
// The answer to a question: a byte for each key. Bit g is set if the server has the part of group g, or will
// soon have it.
std::string write_peer_answer(std::span<const std::uint8_t> groups);
Result<std::vector<std::uint8_t>> read_peer_answer(std::string_view body, std::size_t keys,
                                                   std::uint32_t group_count);

// A read: u32 milliseconds after which parts that have not begun to come count as gone, u8 rounds, u32 count,
// and for each block 16 bytes key and u8 groups, at least one.
struct PeerWants {
  Nanos time_limit = 0;     // at most kPeerWaitMax
  std::uint8_t rounds = 1;  // is_peer_rounds(); PeerRead::rounds
  std::vector<PeerWant> wants;
};
std::string write_peer_wants(const PeerWants& wants);
Result<PeerWants> read_peer_wants(std::string_view body, std::uint32_t group_count);

// The reply to a read. A part is a block's state in one layer group. It comes in pieces, each some layers
// that follow those of the piece before, in the backend's layout; pieces of other parts may be between them.
// A piece is a head and its bytes. Instead of a piece a head may say that the part is gone: what has not come
// does not come.
struct PeerPieceHead {
  std::uint32_t index = 0;  // index of the block among the wanted ones
  std::uint8_t group = 0;
  bool is_gone = false;
  std::uint16_t first = 0;   // index in the group of the first layer; 0 if it is gone
  std::uint64_t bytes = 0;   // how many bytes follow: of whole layers
  std::uint64_t check[2]{};  // check_peer_piece() of these bytes
};
inline constexpr std::size_t kPeerPieceHeadBytes = 32;
// A reader holds a piece until it has verified. So a piece has one layer, or as many as have so many bytes
// together.
inline constexpr std::uint64_t kPeerPieceBytesMax = 256 << 10;
constexpr std::uint64_t peer_piece_bytes_max(std::uint64_t layer_bytes) {
  return std::max(layer_bytes, kPeerPieceBytesMax / layer_bytes * layer_bytes);
}
std::string write_peer_piece_head(const PeerPieceHead& head);
// XXH3, 128 bits, of the key, the group, the first layer and the bytes. It detects a piece that was assembled
// wrongly; TLS ensures that nobody changed it on the way.
void check_peer_piece(const ChainKey& key, std::uint8_t group, std::uint16_t first,
                      std::span<const std::byte> bytes, std::uint64_t check[2]);

// Reads such a reply as it arrives, with one piece in memory at a time.
class PeerPartReader {
 public:
  struct Sink {
    // Called with layers [first, first + count) of a part, which verified. The bytes are valid until it
    // returns. Those of one part come in order.
    std::function<void(std::uint32_t index, std::uint8_t group, LayerRange layers,
                       std::span<const std::byte> bytes)>
        layers;
    // The part's last call: all its layers have come; some did not verify; what has not come is gone.
    std::function<void(std::uint32_t index, std::uint8_t group)> whole;
    std::function<void(std::uint32_t index, std::uint8_t group)> damaged;
    std::function<void(std::uint32_t index, std::uint8_t group)> gone;
  };

  // `groups`: the backend's. Each wanted part has at most one last call.
  PeerPartReader(std::vector<PeerWant> wants, std::vector<SharedGroup> groups, Sink sink);

  // Reads some bytes of the reply. Errors: kDataLoss naming the field; after one feed() must not be called
  // again. Bytes that lie at the beginning of room() are not copied.
  Status feed(std::string_view bytes);
  // Where the bytes that follow may be put: the rest of the piece that has begun; empty: none has. Valid
  // until feed() is called.
  std::span<std::byte> room() {
    return in_piece_ ? std::span(piece_).subspan(filled_, head_.bytes - filled_) : std::span<std::byte>();
  }
  // True once the sink has been told the end of every wanted part, and all bytes of damaged parts were read.
  bool complete() const { return left_ == 0; }

 private:
  Status begin_piece();
  void end_piece();
  void end_part();
  std::uint32_t& came(std::uint32_t index, std::uint8_t group) {
    return came_[index * groups_.size() + group];
  }

  std::vector<PeerWant> wants_;  // with the groups of which something is to come
  const std::vector<SharedGroup> groups_;
  const Sink sink_;
  std::size_t left_ = 0;               // number of parts of which something is to come
  std::vector<std::uint32_t> came_;    // by block and group: layers
  std::vector<std::uint8_t> damaged_;  // by block: groups
  std::string head_bytes_;
  PeerPieceHead head_;
  bool in_piece_ = false;
  std::vector<std::byte> piece_;  // of the piece that has begun, and as large as the largest one so far
  std::size_t filled_ = 0;
};

}  // namespace loci
