// SPDX-License-Identifier: Apache-2.0
// Reads some values from an S3 store, each in pieces of whole packs: the first pieces of all of them, then
// the second ones, so that layers come in order. A piece is one request, so it is large: a request costs a
// round trip, and money (docs/decisions/shared-store.md). Packs are opened as they come.
//
//     30 layers of 128 KiB   | piece 0: packs 0-14 | piece 1: packs 15-29 |
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/memory/block_source.h"
#include "loci/memory/shared/s3_client.h"
#include "loci/memory/shared/s3_store_state.h"

namespace loci {

// On the client's thread alone. It lives until all its items have ended.
class S3Read : public std::enable_shared_from_this<S3Read> {
 public:
  struct Item {
    std::size_t place = 0;  // in the call of BlockSource::read()
    ChainKey key;
    std::uint32_t group = 0;
  };
  static constexpr std::uint64_t kPieceBytesMax = std::uint64_t{2} << 20;  // one pack at least

  // `state` and `client` must outlive it. `waits_until`: each item is begun by then.
  S3Read(std::vector<Item> items, std::shared_ptr<BlockReadSink> sink, Nanos waits_until,
         const S3StoreState& state, S3Client& client);

  void begin();
  // Ends all at once, instead of begin().
  void refuse(const Status& status);

 private:
  struct Progress {
    std::uint32_t packs = 0;         // that were opened
    std::vector<std::byte> pending;  // of the next one
    std::optional<Status> verdict;   // why no more is taken
  };

  void ask(std::size_t index, Nanos waits_until);
  bool take(std::size_t index, const S3Head& head, std::span<const std::byte> bytes);
  bool take_pack(std::size_t index);
  void take_reply(std::size_t index, const S3Reply& reply);
  void finish(std::size_t index, Status status);

  const std::vector<Item> items_;
  const std::shared_ptr<BlockReadSink> sink_;
  const Nanos waits_until_;
  const S3StoreState& state_;
  S3Client& client_;
  std::vector<Progress> progress_;
  std::vector<std::byte> slices_;
};

}  // namespace loci
