// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/feed/feed_wire.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "loci/base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace loci {
namespace {

const FeedQuestion kQuestion{.epoch = 7, .after = 100, .wait = 5 * kNanosPerSecond};
const FeedPageQuestion kPageQuestion{.epoch = 7, .place = 40};

std::string field_of_changes(const std::string& body) {
  return read_feed_changes(body, kQuestion).status().field();
}
std::string field_of_page(const std::string& body) {
  return read_feed_page(body, kPageQuestion).status().field();
}

TEST(FeedWire, WhatIsWrittenIsRead) {
  const FeedQuestion question = read_feed_question(write_feed_question(kQuestion)).value();
  EXPECT_EQ(question.epoch, 7u);
  EXPECT_EQ(question.after, 100u);
  EXPECT_EQ(question.wait, 5 * kNanosPerSecond);
  FeedChanges changes{.epoch = 7,
                      .last = 102,
                      .costs = {.compute_us = 1, .host_us = 2, .disk_us = 3, .peer_us = 4},
                      .changes = {FeedEntry::of(0x1234567812345678, Tier::kDisk), FeedEntry::of(8, {})}};
  const FeedChanges read = read_feed_changes(write_feed_changes(changes), kQuestion).value();
  EXPECT_EQ(read.changes, changes.changes);
  EXPECT_EQ(read.costs, changes.costs);
  EXPECT_EQ(read.changes[0].tier(), Tier::kDisk);
  EXPECT_EQ(read.changes[0].name(), 0x1234567812345678u);
  EXPECT_FALSE(read.changes[1].tier().has_value());
  const FeedPage page{.epoch = 7, .last = 99, .next = 50, .entries = {FeedEntry::of(4, Tier::kDevice)}};
  const FeedPage page_read = read_feed_page(write_feed_page(page), kPageQuestion).value();
  EXPECT_EQ(page_read.entries, page.entries);
  EXPECT_EQ(page_read.next, 50u);
  EXPECT_EQ(read_feed_page_question(write_feed_page_question(kPageQuestion))->place, 40u);
}

TEST(FeedWire, WrongQuestionsAreNamed) {
  const std::string question = write_feed_question(kQuestion);
  EXPECT_EQ(read_feed_question(question.substr(1)).status().field(), "length");
  EXPECT_EQ(read_feed_question(question + "x").status().field(), "length");
  std::string waits = question;
  waits[19] = 1;
  EXPECT_EQ(read_feed_question(waits).status().field(), "wait");
  EXPECT_EQ(read_feed_page_question("").status().field(), "length");
}

TEST(FeedWire, RepliesThatDoNotAnswerAreNamed) {
  const auto changes = [](std::uint64_t epoch, std::uint64_t last, std::size_t count) {
    return write_feed_changes(
        {.epoch = epoch, .last = last, .costs = {}, .changes = std::vector<FeedEntry>(count, FeedEntry{5})});
  };
  EXPECT_EQ(field_of_changes(changes(7, 103, 3)), "");
  EXPECT_EQ(field_of_changes(changes(8, 103, 3)), "epoch");
  EXPECT_EQ(field_of_changes(changes(7, 104, 3)), "last") << "one is missing";
  EXPECT_EQ(field_of_changes(changes(7, 99, 0)), "last") << "numbers do not fall";
  EXPECT_EQ(field_of_changes(changes(7, 103, 3) + "x"), "count");
  EXPECT_EQ(field_of_changes("short"), "length");
  std::string many = changes(7, 103, 3);
  many[38] = 1;
  EXPECT_EQ(field_of_changes(many), "count") << "before memory is taken";
  std::string kind = changes(7, 103, 3);
  kind[32] = 2;
  EXPECT_EQ(field_of_changes(kind), "kind");
  kind[32] = 1;
  EXPECT_EQ(field_of_changes(kind), "count") << "a gap tells no changes";
  for (const auto& [place, field] :
       {std::pair(16, "compute_us"), {20, "host_us"}, {24, "disk_us"}, {28, "peer_us"}}) {
    std::string nothing = changes(7, 103, 3);
    nothing[static_cast<std::size_t>(place)] = 0;
    EXPECT_EQ(field_of_changes(nothing), field) << "a front divides by it";
  }

  const auto page = [](std::uint64_t epoch, std::uint32_t next, std::uint64_t word) {
    return write_feed_page({.epoch = epoch, .last = 0, .next = next, .entries = {{word}}});
  };
  EXPECT_EQ(field_of_page(page(7, 41, 5)), "");
  EXPECT_EQ(field_of_page(page(7, 0, 5)), "");
  EXPECT_EQ(field_of_page(page(6, 41, 5)), "epoch");
  EXPECT_EQ(field_of_page(page(7, 40, 5)), "next") << "it would never end";
  EXPECT_EQ(field_of_page(page(7, kFeedChunksMax + 1, 5)), "next");
  EXPECT_EQ(field_of_page(page(7, 41, 4)), "entry") << "what is gone is on no page";
  EXPECT_EQ(field_of_page(page(7, 41, 5).substr(0, 30)), "count");
  EXPECT_EQ(read_feed_page(page(0, 41, 5), {}).status().field(), "epoch") << "0 is no epoch";
  const auto entries = [](std::uint32_t place, std::uint32_t next, std::size_t count) {
    const FeedPage written{
        .epoch = 7, .last = 0, .next = next, .entries = std::vector<FeedEntry>(count, {5})};
    return read_feed_page(write_feed_page(written), {.epoch = 7, .place = place}).status().field();
  };
  EXPECT_EQ(entries(40, 42, 2), "");
  EXPECT_EQ(entries(40, 42, 3), "count") << "two places have no three entries";
  EXPECT_EQ(entries(kFeedChunksMax - 2, 0, 2), "");
  EXPECT_EQ(entries(kFeedChunksMax - 2, 0, 3), "count");
  EXPECT_EQ(entries(kFeedChunksMax + 1, 0, 1), "count");
}

TEST(FeedWire, ErrorsSayWhatIsAllowedAndFound) {
  const auto message = [](const auto& result) { return result.status().message(); };
  FeedChanges changes{.epoch = 7, .last = 102, .costs = {}, .changes = {{5}, {6}}};
  const auto changed = [&](const auto& change) {
    FeedChanges wrong = changes;
    change(wrong);
    return message(read_feed_changes(write_feed_changes(wrong), kQuestion));
  };
  EXPECT_EQ(message(read_feed_changes("short", kQuestion)), "expected 40 bytes at least, found 5");
  EXPECT_EQ(changed([](FeedChanges& one) { one.costs.host_us = 0; }),
            "expected at least 1 microsecond, found 0");
  EXPECT_EQ(changed([](FeedChanges& one) { one.last = 103; }),
            "expected the last number to be that of the last of 2 changes after 100, found 103");
  std::string gap = write_feed_changes(changes);
  gap[32] = 1;
  EXPECT_EQ(message(read_feed_changes(gap, kQuestion)), "expected no changes after a gap, found 2");
  const auto page = [&](const FeedPage& written, const FeedPageQuestion& question) {
    return message(read_feed_page(write_feed_page(written), question));
  };
  EXPECT_EQ(page({.epoch = 0, .last = 0, .next = 0, .entries = {}}, {}),
            "expected a number other than 0, found 0");
  EXPECT_EQ(page({.epoch = 7, .last = 0, .next = 0, .entries = {FeedEntry::of(4, {})}}, kPageQuestion),
            "expected an entry with a tier, found one that says that the state is gone");
}

// As a fuzzer would: random bytes, and genuine messages with a few bytes changed.
TEST(FeedWire, AnyBytes) {
  Random random(11);
  const std::vector<std::string> genuine = {
      write_feed_question(kQuestion), write_feed_page_question(kPageQuestion),
      write_feed_changes({.epoch = 7, .last = 102, .costs = {}, .changes = {{5}, {6}}}),
      write_feed_page({.epoch = 7, .last = 3, .next = 0, .entries = {{5}, {6}, {7}}})};
  for (int run = 0; run < 4'000; ++run) {
    std::string input(16, '\0');
    input[0] = 7;
    input[8] = 100;
    if (run % 2 == 0) {
      input += genuine[random.below(genuine.size())];
    } else {
      for (std::uint64_t left = random.below(90); left > 0; --left)
        input += static_cast<char>(random.below(256));
    }
    for (std::uint64_t changed = random.below(4); changed > 0; --changed)
      input[random.below(input.size())] = static_cast<char>(random.below(256));
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  }
}

}  // namespace
}  // namespace loci
