// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/feed/feed_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/little_endian.h"

namespace loci {
namespace {

constexpr std::size_t kQuestionBytes = 20, kPageQuestionBytes = 12;
constexpr std::size_t kChangesHeadBytes = 40, kPageHeadBytes = 24;

Status check_length(std::string_view body, std::size_t bytes) {
  if (body.size() == bytes) return {};
  return invalid_argument(fmt::format("expected {} bytes, found {}", bytes, body.size()), "length");
}

Status check_head(std::string_view body, std::size_t bytes) {
  if (body.size() >= bytes) return {};
  return invalid_argument(fmt::format("expected {} bytes at least, found {}", bytes, body.size()), "length");
}

// Of the entries that follow a head of `head` bytes.
Status check_count(std::string_view body, std::size_t head, std::uint32_t count) {
  if (count > kFeedEntriesMax)
    return invalid_argument(fmt::format("expected at most {}, found {}", kFeedEntriesMax, count), "count");
  if (body.size() - head == count * sizeof(std::uint64_t)) return {};
  return invalid_argument(fmt::format("expected {} bytes for {} entries, found {}",
                                      count * sizeof(std::uint64_t), count, body.size() - head),
                          "count");
}

// Whoever compares costs divides by them.
Status check_costs(const FeedCosts& costs) {
  for (const auto& [field, cost] : {std::pair("compute_us", costs.compute_us),
                                    {"host_us", costs.host_us},
                                    {"disk_us", costs.disk_us},
                                    {"peer_us", costs.peer_us}}) {
    if (cost == 0) return invalid_argument("expected at least 1 microsecond, found 0", field);
  }
  return {};
}

Status check_epoch(std::uint64_t expected, std::uint64_t found) {
  if (found == expected || (expected == 0 && found != 0)) return {};
  return invalid_argument(fmt::format("expected {:016x}, found {:016x}", expected, found), "epoch");
}

}  // namespace

std::string write_feed_question(const FeedQuestion& question) {
  std::string out;
  put_number(out, question.epoch);
  put_number(out, question.after);
  put_number(out, static_cast<std::uint32_t>(question.wait / kNanosPerMilli));
  return out;
}

Result<FeedQuestion> read_feed_question(std::string_view body) {
  LOCI_RETURN_IF_ERROR(check_length(body, kQuestionBytes));
  FieldTaker fields(body);
  FeedQuestion out;
  out.epoch = fields.number<std::uint64_t>();
  out.after = fields.number<std::uint64_t>();
  const auto wait_ms = fields.number<std::uint32_t>();
  if (wait_ms > kFeedWaitMax / kNanosPerMilli) {
    return invalid_argument(
        fmt::format("expected at most {} ms, found {}", kFeedWaitMax / kNanosPerMilli, wait_ms), "wait");
  }
  out.wait = wait_ms * kNanosPerMilli;
  return out;
}

std::string write_feed_changes(const FeedChanges& changes) {
  LOCI_CHECK(changes.changes.size() <= kFeedEntriesMax && (!changes.is_gap || changes.changes.empty()),
             "a reply has so many changes, and none behind a gap");
  std::string out;
  put_number(out, changes.epoch);
  put_number(out, changes.last);
  put_number(out, changes.costs.compute_us);
  put_number(out, changes.costs.host_us);
  put_number(out, changes.costs.disk_us);
  put_number(out, changes.costs.peer_us);
  put_number(out, static_cast<std::uint32_t>(changes.is_gap));
  put_number(out, static_cast<std::uint32_t>(changes.changes.size()));
  for (const FeedEntry& change : changes.changes) put_number(out, change.word);
  return out;
}

Result<FeedChanges> read_feed_changes(std::string_view body, const FeedQuestion& question) {
  LOCI_RETURN_IF_ERROR(check_head(body, kChangesHeadBytes));
  FieldTaker fields(body);
  FeedChanges out;
  out.epoch = fields.number<std::uint64_t>();
  out.last = fields.number<std::uint64_t>();
  out.costs.compute_us = fields.number<std::uint32_t>();
  out.costs.host_us = fields.number<std::uint32_t>();
  out.costs.disk_us = fields.number<std::uint32_t>();
  out.costs.peer_us = fields.number<std::uint32_t>();
  LOCI_RETURN_IF_ERROR(check_costs(out.costs));
  const auto kind = fields.number<std::uint32_t>();
  const auto count = fields.number<std::uint32_t>();
  if (kind > 1) return invalid_argument(fmt::format("expected 0 or 1, found {}", kind), "kind");
  out.is_gap = kind == 1;
  LOCI_RETURN_IF_ERROR(check_count(body, kChangesHeadBytes, count));
  if (out.is_gap) {
    if (count != 0)
      return invalid_argument(fmt::format("expected no changes after a gap, found {}", count), "count");
    return out;
  }
  LOCI_RETURN_IF_ERROR(check_epoch(question.epoch, out.epoch));
  if (out.last < question.after || out.last - question.after != count) {
    return invalid_argument(
        fmt::format("expected the last number to be that of the last of {} changes after {}, found {}", count,
                    question.after, out.last),
        "last");
  }
  out.changes.resize(count);
  for (FeedEntry& change : out.changes) change.word = fields.number<std::uint64_t>();
  return out;
}

std::string write_feed_page_question(const FeedPageQuestion& question) {
  std::string out;
  put_number(out, question.epoch);
  put_number(out, question.place);
  return out;
}

Result<FeedPageQuestion> read_feed_page_question(std::string_view body) {
  LOCI_RETURN_IF_ERROR(check_length(body, kPageQuestionBytes));
  FieldTaker fields(body);
  FeedPageQuestion out;
  out.epoch = fields.number<std::uint64_t>();
  out.place = fields.number<std::uint32_t>();
  return out;
}

std::string write_feed_page(const FeedPage& page) {
  LOCI_CHECK(page.entries.size() <= kFeedEntriesMax, "a page has so many entries");
  std::string out;
  put_number(out, page.epoch);
  put_number(out, page.last);
  put_number(out, page.next);
  put_number(out, static_cast<std::uint32_t>(page.entries.size()));
  for (const FeedEntry& entry : page.entries) put_number(out, entry.word);
  return out;
}

Result<FeedPage> read_feed_page(std::string_view body, const FeedPageQuestion& question) {
  LOCI_RETURN_IF_ERROR(check_head(body, kPageHeadBytes));
  FieldTaker fields(body);
  FeedPage out;
  out.epoch = fields.number<std::uint64_t>();
  out.last = fields.number<std::uint64_t>();
  out.next = fields.number<std::uint32_t>();
  const auto count = fields.number<std::uint32_t>();
  LOCI_RETURN_IF_ERROR(check_epoch(question.epoch, out.epoch));
  if (out.epoch == 0) return invalid_argument("expected a number other than 0, found 0", "epoch");
  if (out.next != 0 && (out.next <= question.place || out.next > kFeedChunksMax)) {
    return invalid_argument(fmt::format("expected 0, or more than {} and at most {}, found {}",
                                        question.place, kFeedChunksMax, out.next),
                            "next");
  }
  LOCI_RETURN_IF_ERROR(check_count(body, kPageHeadBytes, count));
  // A place has one entry at most, so all pages together have no more than there are places.
  const std::uint32_t end = out.next != 0 ? out.next : kFeedChunksMax;
  if (const std::uint32_t places = end - std::min(end, question.place); count > places) {
    return invalid_argument(fmt::format("expected at most {} in the places from {} to {}, found {}", places,
                                        question.place, end, count),
                            "count");
  }
  out.entries.resize(count);
  for (FeedEntry& entry : out.entries) {
    entry.word = fields.number<std::uint64_t>();
    if (!entry.tier())
      return invalid_argument("expected an entry with a tier, found one that says that the state is gone",
                              "entry");
  }
  return out;
}

}  // namespace loci
