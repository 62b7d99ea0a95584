// SPDX-License-Identifier: Apache-2.0
// What every shared store does, whatever protocol it speaks: tests that each store's own tests instantiate
// with a place, a server of that protocol which the tests' process runs and a way to open stores there:
//
//     std::unique_ptr<SharedStore> open(Haste haste, std::uint8_t secret = 1);
//     std::string name(seed, group); values(), set_values(by name)     what the server holds
//     void be_silent(); void refuse_writes(); void refuse_deletions(); void be_well();
//     void dribble(pause)                                               it sends a byte now and then
//     std::uint64_t questions(), writes()                               that came, ever
//     std::unique_ptr<SharedStore> open_nowhere(); nowhere()            where no server is, and its name
//     std::string refusal(); Warnings warnings                          how it refuses deletions; of its
//     stores
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "loci/memory/shared/shared_store_testing.h"

namespace loci::shared_test {

// Whether a store gives up what takes too long in time for a test.
enum class Haste : std::uint8_t { kNone, kHasty };

template <class Place>
class SharedStoreContract : public testing::Test {
 protected:
  Place place_;
};
TYPED_TEST_SUITE_P(SharedStoreContract);

TYPED_TEST_P(SharedStoreContract, WhatIsWrittenIsFoundAndRead) {
  auto& place = this->place_;
  const auto store = place.open(Haste::kNone);
  for (std::uint64_t seed = 0; seed < 9; ++seed) {
    for (std::uint32_t group = 0; group < 2; ++group) EXPECT_TRUE(write(*store, seed, group).ok());
  }
  EXPECT_EQ(place.values().size(), 18u);
  EXPECT_TRUE(place.values().contains(place.name(3, 0)));
  EXPECT_EQ(ask(*store, {3, 100, 8}), (std::vector<std::uint8_t>{3, 0, 3}));
  for (std::uint32_t group = 0; group < 2; ++group) {
    const auto sink = read(*store, {0, 1, 2, 3, 4, 5, 6, 7, 8}, group);
    for (std::size_t i = 0; i < 9; ++i) {
      EXPECT_TRUE(sink->wait()[i].status->ok());
      EXPECT_EQ(sink->wait()[i].bytes, bytes_of(i, group));
    }
  }
  // (Counted once the last item's end is told.)
  await([&] { return store->stats().parts_read_total == 18; });
  const SharedStoreStats stats = store->stats();
  EXPECT_EQ(stats.parts_written_total, 18u);
  EXPECT_EQ(stats.parts_asked_total, 6u);
  EXPECT_EQ(stats.parts_found_total, 4u);
  EXPECT_EQ(stats.failures_total, 0u);
  EXPECT_TRUE(stats.up);
}

TYPED_TEST_P(SharedStoreContract, AnotherServerFindsIt) {
  auto& place = this->place_;
  const auto one = place.open(Haste::kNone), other = place.open(Haste::kNone);
  EXPECT_TRUE(write(*one, 5, 0).ok());
  EXPECT_EQ(ask(*other, {5}), std::vector<std::uint8_t>{1});
  EXPECT_EQ(read(*other, {5}, 0)->wait()[0].bytes, bytes_of(5, 0));
  EXPECT_EQ(ask(*place.open(Haste::kNone, 2), {5}), std::vector<std::uint8_t>{0}) << "under another secret";
  // It is not written again.
  EXPECT_TRUE(write(*other, 5, 0).ok());
  EXPECT_EQ(place.writes(), 1u);
  EXPECT_EQ(other->stats().parts_present_total, 1u);
}

TYPED_TEST_P(SharedStoreContract, WhatIsGoneOrDamagedIsToldSo) {
  auto& place = this->place_;
  const auto store = place.open(Haste::kNone);
  for (std::uint64_t seed = 0; seed < 4; ++seed) ASSERT_TRUE(write(*store, seed, 0).ok());
  auto values = place.values();
  values.erase(place.name(0, 0));
  values[place.name(1, 0)].back() ^= 1;                 // in the last pack
  values[place.name(2, 0)] = values[place.name(3, 0)];  // another's
  place.set_values(values);
  EXPECT_EQ(ask(*store, {0, 1, 2, 3}), (std::vector<std::uint8_t>{0, 1, 1, 1}));
  const auto sink = read(*store, {0, 1, 2, 3}, 0);
  const auto& items = sink->wait();
  EXPECT_EQ(items[0].status->code(), StatusCode::kNotFound);
  EXPECT_EQ(items[1].status->code(), StatusCode::kDataLoss);
  EXPECT_EQ(items[1].layers, 4u) << "what came before the damaged pack was genuine";
  EXPECT_EQ(items[2].status->code(), StatusCode::kDataLoss);
  EXPECT_EQ(items[2].layers, 0u);
  EXPECT_EQ(items[3].bytes, bytes_of(3, 0));
  await([&] { return store->stats().parts_gone_total == 1 && store->stats().parts_damaged_total == 2; });
  EXPECT_EQ(store->stats().failures_total, 0u);
  await([&] { return place.values().size() == 1; });  // what is damaged is deleted
  EXPECT_TRUE(write(*store, 2, 0).ok());
  EXPECT_EQ(read(*store, {2}, 0)->wait()[0].bytes, bytes_of(2, 0)) << "and written anew";
}

TYPED_TEST_P(SharedStoreContract, ForgettingDeletes) {
  auto& place = this->place_;
  const auto store = place.open(Haste::kNone);
  ASSERT_TRUE(write(*store, 1, 0).ok());
  ASSERT_TRUE(write(*store, 1, 1).ok());
  forget(*store, 1);
  await([&] { return place.values().empty(); });
}

TYPED_TEST_P(SharedStoreContract, AFullStoreRefusesAndStays) {
  auto& place = this->place_;
  const auto store = place.open(Haste::kNone);
  place.refuse_writes();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(write(*store, i, 0).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(store->stats().parts_refused_total, 10u);
  EXPECT_EQ(store->stats().failures_total, 0u);
  EXPECT_TRUE(store->stats().up);
}

TYPED_TEST_P(SharedStoreContract, ASilentStoreCostsDeadlinesThenNothing) {
  auto& place = this->place_;
  const auto store = place.open(Haste::kHasty);
  await([&] { return store->stats().up; });
  place.be_silent();
  await([&] {
    EXPECT_EQ(ask(*store, {1}, kNanosPerSecond / 20), std::vector<std::uint8_t>{0});
    return !store->stats().up;
  });
  await([&] { return place.warnings.count("is not asked until it answers again") > 0; });
  await([&] {  // until it is not asked, as one of the questions before may come late
    const std::uint64_t asked = place.questions();
    EXPECT_EQ(ask(*store, {1}), std::vector<std::uint8_t>{0});
    EXPECT_EQ(read(*store, {1}, 0)->wait()[0].status->code(), StatusCode::kUnavailable);
    EXPECT_EQ(write(*store, 1, 0).code(), StatusCode::kUnavailable);
    return place.questions() == asked;
  });
  place.be_well();
  await([&] { return store->stats().up; });  // a probe finds it
  await([&] { return write(*store, 1, 0).ok(); });
  await([&] { return ask(*store, {1}) == std::vector<std::uint8_t>{1}; });
}

// Nothing is written, so nobody but who asks could have it tried again.
TYPED_TEST_P(SharedStoreContract, WhatQuestionsFoundAwayIsTriedAgain) {
  auto& place = this->place_;
  const auto store = place.open(Haste::kHasty);
  await([&] { return store->stats().up; });
  place.be_silent();
  await([&] {
    (void)ask(*store, {1}, kNanosPerSecond / 20);
    return !store->stats().up;
  });
  place.be_well();
  await([&] { return store->stats().up; });
}

TYPED_TEST_P(SharedStoreContract, DeletionsThatAreNotTakenAreCounted) {
  auto& place = this->place_;
  const auto store = place.open(Haste::kNone);
  ASSERT_TRUE(write(*store, 1, 0).ok());
  place.refuse_deletions();
  for (const std::uint64_t seed : {1, 2, 3}) forget(*store, seed);
  await([&] { return store->stats().deletions_dropped_total == 3; });
  EXPECT_TRUE(store->stats().up);
  EXPECT_EQ(place.values().size(), 1u);
  EXPECT_EQ(place.warnings.count("did not take a deletion"), 1) << "told once: " << place.warnings.all();
  EXPECT_EQ(place.warnings.count(place.refusal()), 1) << place.warnings.all();
  place.be_well();
  forget(*store, 1);
  await([&] { return place.values().empty(); });
  EXPECT_EQ(store->stats().deletions_dropped_total, 3u);
}

TYPED_TEST_P(SharedStoreContract, DeletionsAreKeptUntilTheStoreIsBack) {
  auto& place = this->place_;
  const auto other = place.open(Haste::kNone);
  for (std::uint64_t seed = 0; seed < 20; ++seed) ASSERT_TRUE(write(*other, seed, 1).ok());
  const auto store = place.open(Haste::kHasty);
  place.be_silent();
  for (std::uint64_t seed = 0; seed < 20; ++seed) forget(*store, seed);
  await([&] { return !store->stats().up; });
  EXPECT_EQ(place.values().size(), 20u);
  place.be_well();
  await([&] { return place.values().empty(); });
  EXPECT_EQ(store->stats().deletions_dropped_total, 0u);
}

TYPED_TEST_P(SharedStoreContract, AByteNowAndThenIsNoAnswer) {
  auto& place = this->place_;
  ASSERT_TRUE(write(*place.open(Haste::kNone), 1, 0).ok());
  const auto store = place.open(Haste::kHasty);
  await([&] { return store->stats().up; });
  place.dribble(std::chrono::milliseconds(20));
  EXPECT_EQ(read(*store, {1}, 0)->wait()[0].status->code(), StatusCode::kDeadlineExceeded);
  place.dribble(std::chrono::milliseconds(0));
}

TYPED_TEST_P(SharedStoreContract, ItsEndEndsWhatWaits) {
  auto& place = this->place_;
  auto store = place.open(Haste::kNone);
  place.be_silent();
  auto sink = std::make_shared<CollectingSink>(40);
  std::promise<std::vector<std::uint8_t>> answer;
  std::promise<Status> written;
  std::vector<BlockRead> items;
  for (std::uint64_t seed = 0; seed < 40; ++seed) items.push_back({.slot = {}, .key = test_key(seed)});
  store->read(std::move(items), 0, sink);
  store->ask({test_key(1)}, kPatient, [&](auto groups) { answer.set_value(std::move(groups)); });
  store->write(0, {}, {.key = test_key(1)}, bytes_of(1, 0),
               [&](Status status) { written.set_value(std::move(status)); });
  forget(*store, 1);
  store.reset();
  for (const auto& item : sink->wait()) EXPECT_FALSE(item.status->ok());
  EXPECT_EQ(answer.get_future().get(), std::vector<std::uint8_t>{0});
  EXPECT_FALSE(written.get_future().get().ok());
  EXPECT_EQ(place.warnings.count("this server ends"), 1) << place.warnings.all();
}

TYPED_TEST_P(SharedStoreContract, WhoIsNotThereIsNamedAndTriedAgain) {
  auto& place = this->place_;
  const auto store = place.open_nowhere();
  EXPECT_EQ(place.warnings.count(place.nowhere() + " cannot be reached"), 1) << place.warnings.all();
  EXPECT_FALSE(store->stats().up);
}

REGISTER_TYPED_TEST_SUITE_P(SharedStoreContract, WhatIsWrittenIsFoundAndRead, AnotherServerFindsIt,
                            WhatIsGoneOrDamagedIsToldSo, ForgettingDeletes, AFullStoreRefusesAndStays,
                            ASilentStoreCostsDeadlinesThenNothing, WhatQuestionsFoundAwayIsTriedAgain,
                            DeletionsThatAreNotTakenAreCounted, DeletionsAreKeptUntilTheStoreIsBack,
                            AByteNowAndThenIsNoAnswer, ItsEndEndsWhatWaits,
                            WhoIsNotThereIsNamedAndTriedAgain);

}  // namespace loci::shared_test
