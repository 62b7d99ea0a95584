// SPDX-License-Identifier: Apache-2.0
// Reads some values over one connection: the first packs of all of them, then the second ones, so that layers
// come in order. It asks for enough bytes ahead to keep the connection busy, and for no more, so that neither
// side holds much. A pack is opened before the sink sees it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/block_source.h"
#include "loci/memory/shared/redis_connection.h"
#include "loci/memory/shared/shared_format.h"

namespace loci {

// One thread's at a time. Each item's end is told once.
class RedisRead {
 public:
  struct Item {
    std::size_t place = 0;  // in the call of BlockSource::read()
    ChainKey key;
    std::uint32_t group = 0;
    std::uint32_t packs = 0;  // that were opened
    bool over = false;        // its end was told
  };
  struct Rules {
    std::uint64_t window_bytes = 0;
    std::string time_to_live;  // seconds, which begin anew for what is read; empty: none
  };
  struct Counts {
    std::uint64_t read = 0, gone = 0, bytes = 0;
    std::vector<ChainKey> damaged;
  };

  // `waits_until`: it is to begin by then.
  RedisRead(std::vector<Item> items, std::shared_ptr<BlockReadSink> sink, Nanos waits_until)
      : items_(std::move(items)), sink_(std::move(sink)), waits_until_(waits_until) {}

  Nanos waits_until() const { return waits_until_; }
  std::uint64_t bytes(const SharedFormat& format) const;
  // Ends items as they come. Not ok: the connection is of no more use.
  Status carry_out(RedisConnection& connection, const SharedFormat& format, const Rules& rules,
                   Nanos deadline);
  // Ends those that have not ended yet.
  void end(const Status& status);
  const Counts& counts() const { return counts_; }

 private:
  // Of which a reply is to come.
  struct Asked {
    Item* item = nullptr;
    std::uint32_t pack = 0;
    bool dates = false;  // the reply is to the new time to live
    std::uint64_t bytes = 0;
  };

  bool next(const SharedFormat& format, Asked& asked);
  Status ask(RedisConnection& connection, const SharedFormat& format, const Rules& rules, const Asked& asked);
  Status take(RedisConnection& connection, const SharedFormat& format);
  void take_pack(Item& item, std::uint32_t index, const SharedFormat& format);
  void finish(Item& item, Status status);

  std::vector<Item> items_;
  std::shared_ptr<BlockReadSink> sink_;
  Nanos waits_until_;
  Nanos deadline_ = 0;
  Counts counts_;
  std::size_t at_item_ = 0;  // what is asked for next
  std::uint32_t at_pack_ = 0;
  std::uint32_t packs_max_ = 0;  // of an item
  std::deque<Asked> asked_;
  std::uint64_t asked_bytes_ = 0;
  RedisReply reply_;
  std::vector<std::byte> slices_;
};

}  // namespace loci
