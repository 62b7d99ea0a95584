// SPDX-License-Identifier: Apache-2.0
// What tests of the feed share: keys of blocks, and a reader.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>

#include "loci/cluster/feed/block_feed.h"
#include "loci/cluster/feed/feed_wire.h"

namespace loci {

inline ChainKey block_key(std::uint64_t number) {
  ChainKey key;
  std::memcpy(key.bytes.data(), &number, sizeof number);
  return key;
}

using Held = std::map<std::uint64_t, Tier>;

// Follows a feed as a front does.
class Reader {
 public:
  void read(BlockFeed& feed) {
    for (;;) {
      const FeedQuestion question{.epoch = epoch_, .after = after_};
      const FeedChanges changes =
          read_feed_changes(write_feed_changes(feed.changes(question)), question).value();
      costs = changes.costs;
      if (changes.is_gap) {
        read_pages(feed);
        continue;
      }
      if (changes.changes.empty()) return;
      after_ = changes.last;
      for (const FeedEntry& change : changes.changes) take(change);
    }
  }
  // `between`: something happens between two pages.
  template <class Between>
  void read_pages(BlockFeed& feed, Between between) {
    ++snapshots;
    held.clear();
    FeedPageQuestion question;
    do {
      const FeedPage page = read_feed_page(write_feed_page(feed.page(question)), question).value();
      if (question.epoch == 0) after_ = page.last;
      question = {.epoch = page.epoch, .place = page.next};
      for (const FeedEntry& entry : page.entries) take(entry);
      between();
    } while (question.place != 0);
    epoch_ = question.epoch;
  }
  void read_pages(BlockFeed& feed) {
    read_pages(feed, [] {});
  }

  Held held;
  FeedCosts costs;
  int snapshots = 0;

 private:
  void take(const FeedEntry& entry) {
    if (entry.tier())
      held[entry.name()] = *entry.tier();
    else
      held.erase(entry.name());
  }
  std::uint64_t epoch_ = 0, after_ = 0;
};

}  // namespace loci
