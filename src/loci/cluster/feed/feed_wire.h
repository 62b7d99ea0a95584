// SPDX-License-Identifier: Apache-2.0
// The questions of a front about the prompts whose state an instance has, and the answers
// (docs/cluster.md#what-instances-publish has the bytes): changes in the order of their numbers; or, for a
// front that has missed some, pages of everything. They are bodies of HTTP/1.1 requests and replies,
// little-endian.
//
// Readers trust no count, length or order in a message. Values; thread-compatible.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/tier.h"
#include "loci/policy/routing/named_chunks.h"

namespace loci {

inline constexpr std::string_view kFeedPath = "/peers/1/feed";
inline constexpr std::string_view kFeedPagePath = "/peers/1/held";
inline constexpr std::size_t kFeedEntriesMax = 4096;  // of a reply
inline constexpr Nanos kFeedWaitMax = 10 * kNanosPerSecond;
// Between two looks for what a front waits for, so that changes come in batches.
inline constexpr Nanos kFeedPeriod = 50 * kNanosPerMilli;
// The most chunks that an instance publishes.
inline constexpr std::uint32_t kFeedChunksMax = 1 << 18;

// A chunk of a prompt's text and where its state is, in a word: the chunk's name, whose last two bits are 0,
// and there 0 (its state is gone) or the tier and one.
struct FeedEntry {
  std::uint64_t word = 0;
  static FeedEntry of(std::uint64_t name, std::optional<Tier> tier) {
    return {(name & ~kTierBits) | (tier ? static_cast<std::uint64_t>(*tier) + 1 : 0)};
  }
  std::uint64_t name() const { return word & ~kTierBits; }
  std::optional<Tier> tier() const {
    return (word & kTierBits) == 0 ? std::nullopt : std::optional(static_cast<Tier>((word & kTierBits) - 1));
  }
  friend bool operator==(const FeedEntry&, const FeedEntry&) = default;
};

// In published costs a chunk counts as this many tokens, for any text, so that costs do not depend on the
// prompts that an instance got.
inline constexpr std::uint32_t kFeedChunkTokens = 64;

// What a chunk of text costs the instance, in microseconds, none 0: computed, or brought from the tier where
// it is.
struct FeedCosts {
  std::uint32_t compute_us = 1;
  std::uint32_t host_us = 1;
  std::uint32_t disk_us = 1;
  std::uint32_t peer_us = 1;  // another member's, or a shared store's
  friend bool operator==(const FeedCosts&, const FeedCosts&) = default;
};

// A question for the changes after the given number. If there are none the answer waits.
struct FeedQuestion {
  std::uint64_t epoch = 0;  // of the numbers: drawn when the instance started
  std::uint64_t after = 0;
  Nanos wait = 0;  // whole milliseconds, at most kFeedWaitMax
};
struct FeedChanges {
  std::uint64_t epoch = 0;
  std::uint64_t last = 0;  // the number of the last change that is told, or that was told before
  // The question's epoch is another one, or some of the changes after its number are not known any more; none
  // is told.
  bool is_gap = false;
  FeedCosts costs;
  std::vector<FeedEntry> changes;
};

// Asks for one page of all published chunks. The first page begins at place 0, each further one where the
// page before it ended.
struct FeedPageQuestion {
  // The epoch of the first page's reply; 0 in the question for that page. The instance answers whatever it
  // is; the front refuses a reply of another epoch.
  std::uint64_t epoch = 0;
  std::uint32_t place = 0;
};
struct FeedPage {
  std::uint64_t epoch = 0;
  // The number of the last change. After reading pages, a front asks for the changes after the first page's
  // number: they tell of all that moved while the others were read.
  std::uint64_t last = 0;
  std::uint32_t next = 0;  // where the next page begins; 0: there is none
  std::vector<FeedEntry> entries;
};

// Errors of all: kInvalidArgument naming the field. A reply is checked against its question.
std::string write_feed_question(const FeedQuestion& question);
Result<FeedQuestion> read_feed_question(std::string_view body);
std::string write_feed_changes(const FeedChanges& changes);
Result<FeedChanges> read_feed_changes(std::string_view body, const FeedQuestion& question);
std::string write_feed_page_question(const FeedPageQuestion& question);
Result<FeedPageQuestion> read_feed_page_question(std::string_view body);
std::string write_feed_page(const FeedPage& page);
Result<FeedPage> read_feed_page(std::string_view body, const FeedPageQuestion& question);

}  // namespace loci
