// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/peer_wire.h"

#include <fmt/format.h>
#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // the same sums, by the widest instructions that there are
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/little_endian.h"

namespace loci {
namespace {

void put_key(std::string& out, const ChainKey& key) {
  out.append(reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size());
}

ChainKey take_key(FieldTaker& fields) {
  ChainKey key;
  const std::string_view bytes = fields.bytes(key.bytes.size());
  std::memcpy(key.bytes.data(), bytes.data(), bytes.size());
  return key;
}

// The count of entries of `entry_bytes` each that a body ends with.
Result<std::size_t> take_count(FieldTaker& fields, std::size_t entry_bytes) {
  if (fields.left() < 4)
    return invalid_argument(fmt::format("expected 4 bytes at least, found {}", fields.left()), "keys");
  const std::size_t count = fields.number<std::uint32_t>();
  if (count == 0 || count > kPeerKeysMax)
    return invalid_argument(fmt::format("expected 1 to {} keys, found {}", kPeerKeysMax, count), "keys");
  if (fields.left() != count * entry_bytes) {
    return invalid_argument(
        fmt::format("expected {} bytes for {} keys, found {}", count * entry_bytes, count, fields.left()),
        "keys");
  }
  return count;
}

std::uint8_t all_groups(std::uint32_t count) { return static_cast<std::uint8_t>((1u << count) - 1); }

}  // namespace

std::string write_peer_question(std::span<const ChainKey> keys) {
  LOCI_CHECK(!keys.empty() && keys.size() <= kPeerKeysMax, "a question is of some keys");
  std::string out;
  put_number(out, static_cast<std::uint32_t>(keys.size()));
  for (const ChainKey& key : keys) put_key(out, key);
  return out;
}

Result<std::vector<ChainKey>> read_peer_question(std::string_view body) {
  FieldTaker fields(body);
  LOCI_ASSIGN_OR_RETURN(const std::size_t count, take_count(fields, sizeof(ChainKey)));
  std::vector<ChainKey> keys(count);
  for (ChainKey& key : keys) key = take_key(fields);
  return keys;
}

std::string write_peer_answer(std::span<const std::uint8_t> groups) {
  return std::string(reinterpret_cast<const char*>(groups.data()), groups.size());
}

Result<std::vector<std::uint8_t>> read_peer_answer(std::string_view body, std::size_t keys,
                                                   std::uint32_t group_count) {
  if (body.size() != keys) {
    return invalid_argument(fmt::format("expected a byte for each of {} keys, found {}", keys, body.size()),
                            "groups");
  }
  std::vector<std::uint8_t> groups(body.begin(), body.end());
  for (const std::uint8_t bits : groups) {
    if ((bits & ~all_groups(group_count)) != 0)
      return invalid_argument(fmt::format("expected bits of {} groups, found {}", group_count, bits),
                              "groups");
  }
  return groups;
}

std::string write_peer_wants(const PeerWants& wants) {
  LOCI_CHECK(!wants.wants.empty() && wants.wants.size() <= kPeerKeysMax, "a read is of some blocks");
  std::string out;
  put_number(out, static_cast<std::uint32_t>(wants.time_limit / kNanosPerMilli));
  put_number(out, wants.rounds);
  put_number(out, static_cast<std::uint32_t>(wants.wants.size()));
  for (const PeerWant& want : wants.wants) {
    put_key(out, want.key);
    put_number(out, want.groups);
  }
  return out;
}

Result<PeerWants> read_peer_wants(std::string_view body, std::uint32_t group_count) {
  if (body.size() < 5)
    return invalid_argument(fmt::format("expected 9 bytes at least, found {}", body.size()), "time_limit");
  FieldTaker fields(body);
  PeerWants out;
  const auto limit_ms = fields.number<std::uint32_t>();
  if (limit_ms > kPeerWaitMax / kNanosPerMilli) {
    return invalid_argument(
        fmt::format("expected at most {} ms, found {}", kPeerWaitMax / kNanosPerMilli, limit_ms),
        "time_limit");
  }
  out.time_limit = limit_ms * kNanosPerMilli;
  out.rounds = fields.number<std::uint8_t>();
  if (!is_peer_rounds(out.rounds))
    return invalid_argument(fmt::format("expected 1 to {}, found {}", kPeerRoundsMax, out.rounds), "rounds");
  LOCI_ASSIGN_OR_RETURN(const std::size_t count, take_count(fields, sizeof(ChainKey) + 1));
  out.wants.resize(count);
  for (PeerWant& want : out.wants) {
    want.key = take_key(fields);
    want.groups = fields.number<std::uint8_t>();
    if (want.groups == 0 || (want.groups & ~all_groups(group_count)) != 0) {
      return invalid_argument(
          fmt::format("expected bits of {} groups, one at least, found {}", group_count, want.groups),
          "groups");
    }
  }
  return out;
}

std::string write_peer_piece_head(const PeerPieceHead& head) {
  std::string out;
  put_number(out, head.index);
  put_number(out, head.group);
  put_number(out, static_cast<std::uint8_t>(head.is_gone));
  put_number(out, head.first);
  put_number(out, head.bytes);
  for (const std::uint64_t half : head.check) put_number(out, half);
  return out;
}

void check_peer_piece(const ChainKey& key, std::uint8_t group, std::uint16_t first,
                      std::span<const std::byte> bytes, std::uint64_t check[2]) {
  std::uint64_t seed = 0;
  std::memcpy(&seed, key.bytes.data() + 8, sizeof seed);
  const std::uint64_t place = group | std::uint64_t{first} << 8;
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed ^ place);
  check[0] = hash.low64;
  check[1] = hash.high64;
}

PeerPartReader::PeerPartReader(std::vector<PeerWant> wants, std::vector<SharedGroup> groups, Sink sink)
    : wants_(std::move(wants)),
      groups_(std::move(groups)),
      sink_(std::move(sink)),
      came_(wants_.size() * groups_.size()),
      damaged_(wants_.size()) {
  for (const PeerWant& want : wants_) left_ += static_cast<std::size_t>(std::popcount(want.groups));
}

Status PeerPartReader::begin_piece() {
  FieldTaker fields(head_bytes_);
  head_.index = fields.number<std::uint32_t>();
  head_.group = fields.number<std::uint8_t>();
  const auto kind = fields.number<std::uint8_t>();
  head_.first = fields.number<std::uint16_t>();
  head_.bytes = fields.number<std::uint64_t>();
  for (std::uint64_t& half : head_.check) half = fields.number<std::uint64_t>();
  head_bytes_.clear();
  if (kind > 1) return data_loss(fmt::format("expected 0 or 1, found {}", kind), "kind");
  head_.is_gone = kind == 1;
  if (head_.index >= wants_.size())
    return data_loss(fmt::format("expected a block below {}, found {}", wants_.size(), head_.index), "index");
  if (head_.group >= groups_.size() || (wants_[head_.index].groups >> head_.group & 1) == 0)
    return data_loss(fmt::format("group {} of block {} is not wanted", head_.group, head_.index), "group");
  const std::uint32_t expected = head_.is_gone ? 0 : came(head_.index, head_.group);
  if (head_.first != expected)
    return data_loss(fmt::format("expected layer {} of the group, found {}", expected, head_.first), "first");
  if (head_.is_gone) {
    if (head_.bytes != 0)
      return data_loss(fmt::format("expected no bytes of what is gone, found {}", head_.bytes), "bytes");
    if ((damaged_[head_.index] >> head_.group & 1) == 0) sink_.gone(head_.index, head_.group);
    end_part();
    return {};
  }
  const SharedGroup& group = groups_[head_.group];
  const std::uint64_t left = (group.layers - head_.first) * group.layer_slice_bytes;
  const std::uint64_t most = std::min(left, peer_piece_bytes_max(group.layer_slice_bytes));
  if (head_.bytes == 0 || head_.bytes > most || head_.bytes % group.layer_slice_bytes != 0) {
    return data_loss(fmt::format("expected layers of {} bytes each, {} at most, found {}",
                                 group.layer_slice_bytes, most, head_.bytes),
                     "bytes");
  }
  in_piece_ = true;
  filled_ = 0;
  if (piece_.size() < head_.bytes) piece_.resize(head_.bytes);
  return {};
}

void PeerPartReader::end_part() {
  wants_[head_.index].groups &= static_cast<std::uint8_t>(~(1u << head_.group));
  --left_;
}

void PeerPartReader::end_piece() {
  in_piece_ = false;
  const SharedGroup& group = groups_[head_.group];
  std::uint32_t& next = came(head_.index, head_.group);
  next += static_cast<std::uint32_t>(head_.bytes / group.layer_slice_bytes);
  const bool is_last = next == group.layers;
  std::uint8_t& damaged = damaged_[head_.index];
  if ((damaged >> head_.group & 1) == 0) {
    std::uint64_t check[2];
    const std::span<const std::byte> bytes = std::span(piece_).first(head_.bytes);
    check_peer_piece(wants_[head_.index].key, head_.group, head_.first, bytes, check);
    if (check[0] == head_.check[0] && check[1] == head_.check[1]) {
      sink_.layers(head_.index, head_.group, {head_.first, next}, bytes);
      if (is_last) sink_.whole(head_.index, head_.group);
    } else {
      damaged |= static_cast<std::uint8_t>(1u << head_.group);
      sink_.damaged(head_.index, head_.group);
    }
  }
  if (is_last) end_part();
}

Status PeerPartReader::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (complete()) return data_loss(fmt::format("{} bytes follow the last part", bytes.size()), "parts");
    if (in_piece_) {
      const std::span<std::byte> room = this->room();
      const std::size_t count = std::min(bytes.size(), room.size());
      const void* const target = room.data();
      if (target != bytes.data()) std::memcpy(room.data(), bytes.data(), count);
      filled_ += count;
      bytes.remove_prefix(count);
      if (filled_ == head_.bytes) end_piece();
      continue;
    }
    const std::size_t count = std::min(bytes.size(), kPeerPieceHeadBytes - head_bytes_.size());
    head_bytes_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    if (head_bytes_.size() == kPeerPieceHeadBytes) LOCI_RETURN_IF_ERROR(begin_piece());
  }
  return {};
}

}  // namespace loci
