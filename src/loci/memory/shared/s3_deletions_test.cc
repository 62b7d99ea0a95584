// SPDX-License-Identifier: Apache-2.0
// Deletions while blocks are written, late writes, a store that asks for patience, a server that ends.
#include "loci/memory/shared/s3_deletions.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "loci/memory/shared/s3_store_testing.h"

namespace loci {
namespace {

using namespace shared_test;

class S3DeletionsTest : public S3StoreFixture {
 protected:
  // A store whose deletions are done again after kPatient, by `clock`.
  static std::unique_ptr<SharedStore> open_patient(S3StoreOptions options, AdvancedClock& clock) {
    options.late_write_limit = kPatient;
    return open_s3_store(options, clock).value();
  }
  // The store refuses as many writes of the objects as the number says.
  std::shared_ptr<std::atomic<int>> refuse_writes(int number) {
    auto refusals = std::make_shared<std::atomic<int>>(number);
    answer_objects([refusals](const auto& request) -> std::optional<std::string> {
      if (request.method != "PUT" || refusals->fetch_sub(1) <= 0) return std::nullopt;
      return S3Fake::error("500 Internal Server Error", "InternalError");
    });
    return refusals;
  }
  // The store was asked to write a part of the block, and has not said whether it does.
  void write_without_answer(SharedStore& store, std::uint64_t seed) {
    answer_objects([](const auto& request) -> std::optional<std::string> {
      if (request.method == "PUT") return "";
      return std::nullopt;
    });
    await([&] {
      EXPECT_FALSE(write(store, seed, 1).ok());
      return server_.requests("PUT") > 0;
    });
  }
};

TEST_F(S3DeletionsTest, AStoreThatAsksForPatienceGetsItsDeletionsAgain) {
  const auto store = open(options());
  ASSERT_TRUE(write(*store, 1, 0).ok());
  const auto refused = std::make_shared<std::atomic<int>>(0);
  answer_objects([refused](const auto& request) -> std::optional<std::string> {
    if (request.method != "DELETE" || (*refused)++ >= 4) return std::nullopt;
    return S3Fake::error("429 Too Many Requests", "TooManyRequests");
  });
  store->change({.kind = RecordChange::Kind::kForget, .entry = {.key = test_key(1)}});
  await([&] { return server_.objects().empty(); });
  EXPECT_GE(*refused, 4);
  EXPECT_TRUE(store->stats().up);
  EXPECT_EQ(store->stats().deletions_dropped_total, 0u);
}

TEST_F(S3DeletionsTest, ADeletionWaitsForWhatWritesItsBlock) {
  for (const bool is_renewal : {false, true}) {
    const auto store = open(options());
    const std::uint64_t deleted = server_.requests("DELETE");
    if (is_renewal) {
      ASSERT_TRUE(write(*store, 1, 0).ok());
      set_age(1, 0, 600);
    }
    std::promise<void> released;
    const auto is_writing = std::make_shared<std::atomic<bool>>(false);
    answer_objects([is_writing, may_end = released.get_future().share()](
                       const auto& request) -> std::optional<std::string> {
      if (request.method != "PUT") return std::nullopt;
      *is_writing = true;
      may_end.wait();
      return std::nullopt;
    });
    std::promise<Status> written;
    if (is_renewal) {
      EXPECT_TRUE(read(*store, {1}, 0)->wait()[0].status->ok());
    } else {
      store->write(0, {}, {.key = test_key(1)}, bytes_of(1, 0),
                   [&](Status status) { written.set_value(std::move(status)); });
    }
    await([&] { return is_writing->load(); });
    forget(*store, 1);
    forget(*store, 2);
    await([&] { return server_.requests("DELETE") >= deleted + 2; });
    EXPECT_EQ(server_.requests("DELETE"), deleted + 2) << "the other block's";
    released.set_value();
    if (!is_renewal) {
      EXPECT_TRUE(written.get_future().get().ok());
    }
    await([&] { return server_.objects().empty(); });
    await([&] { return server_.requests("DELETE") == deleted + 4; });
    server_.answer(nullptr);
  }
}

TEST_F(S3DeletionsTest, WhatTheStoreWritesLateIsDeletedAgain) {
  AdvancedClock clock;
  const auto store = open_patient(hasty(), clock);
  write_without_answer(*store, 1);
  forget(*store, 1);
  await([&] { return server_.requests("DELETE") >= 2; });
  have({1});  // it carries out what it was asked for before
  clock.advance(kPatient);
  await([&] { return server_.objects().empty(); });
}

// Somebody has said it again, so it is wanted.
TEST_F(S3DeletionsTest, WhatIsWrittenAnewMeanwhileIsNotDeletedAgain) {
  AdvancedClock clock;
  const auto store = open_patient(options(), clock);
  const auto refusals = refuse_writes(0);
  for (const std::uint64_t seed : {1, 2}) {
    *refusals = 1;
    EXPECT_TRUE(write(*store, seed, 1).ok());
    forget(*store, seed);
    await([&] { return server_.objects().empty() && server_.requests("DELETE") >= 2 * seed; });
  }
  EXPECT_TRUE(write(*store, 1, 1).ok());
  const auto wanted = server_.objects();
  have({2});  // it carries out what it was asked for before
  clock.advance(kPatient);
  await([&] { return server_.objects().size() == wanted.size(); });
  EXPECT_EQ(server_.objects(), wanted);
}

// It was begun while the block was being deleted.
TEST_F(S3DeletionsTest, WhatIsWrittenDuringItsDeletionIsNotDeletedAgain) {
  AdvancedClock clock;
  const auto store = open_patient(options(), clock);
  std::promise<void> released;
  const auto refusals = std::make_shared<std::atomic<int>>(0);
  answer_objects(
      [refusals, may_end = released.get_future().share()](const auto& request) -> std::optional<std::string> {
        if (request.method == "DELETE" && request.path == path(1, 0)) may_end.wait();
        if (request.method != "PUT" || refusals->fetch_sub(1) <= 0) return std::nullopt;
        return S3Fake::error("500 Internal Server Error", "InternalError");
      });
  for (const std::uint64_t seed : {1, 2}) {
    *refusals = 1;
    EXPECT_TRUE(write(*store, seed, 1).ok());
    forget(*store, seed);
    await([&] { return server_.objects().empty(); });
  }
  EXPECT_TRUE(write(*store, 1, 1).ok());
  const auto wanted = server_.objects();
  released.set_value();
  forget(*store, 3);  // takes as long as the end of the one that was held up
  await([&] { return server_.requests("DELETE") == 6; });
  have({2});  // it carries out what it was asked for before
  clock.advance(kPatient);
  await([&] { return server_.objects().size() == wanted.size(); });
  EXPECT_EQ(server_.objects(), wanted);
}

// A write that the store does not take has made nothing wanted.
TEST_F(S3DeletionsTest, WhatWasToBeWrittenAnewInVainIsDeletedAgain) {
  AdvancedClock clock;
  const auto store = open_patient(options(), clock);
  const auto refusals = std::make_shared<std::atomic<int>>(1);
  const auto knows = std::make_shared<std::atomic<bool>>(true);
  answer_objects([refusals, knows](const auto& request) -> std::optional<std::string> {
    const bool is_refused =
        request.method == "PUT" ? refusals->fetch_sub(1) > 0 : request.method == "HEAD" && !*knows;
    if (!is_refused) return std::nullopt;
    return S3Fake::error("500 Internal Server Error", "InternalError");
  });
  EXPECT_TRUE(write(*store, 1, 1).ok());
  forget(*store, 1);
  await([&] { return server_.objects().empty() && server_.requests("DELETE") >= 2; });
  *knows = false;
  EXPECT_FALSE(write(*store, 1, 1).ok());
  *knows = true;
  have({1});
  clock.advance(kPatient);
  await([&] { return server_.objects().empty(); });
}

// A try without an answer may be carried out after one that was answered, too.
TEST_F(S3DeletionsTest, WhatATryBeforeMayWriteLateIsDeletedAgain) {
  AdvancedClock clock;
  const auto store = open_patient(options(), clock);
  refuse_writes(1);
  EXPECT_TRUE(write(*store, 1, 1).ok());
  forget(*store, 1);
  await([&] { return server_.objects().empty() && server_.requests("DELETE") >= 2; });
  have({1});
  clock.advance(kPatient);
  await([&] { return server_.objects().empty(); });
}

TEST_F(S3DeletionsTest, DeletionsThatAServersEndLeavesUndoneAreTold) {
  S3StoreOptions late = hasty();
  late.late_write_limit = kPatient;
  auto store = open(late);
  await([&] { return store->stats().up; });
  write_without_answer(*store, 1);
  forget(*store, 1);
  await([&] { return server_.requests("DELETE") >= 2 && store->stats().up; });
  store.reset();
  EXPECT_EQ(warnings_.count("this server ends"), 1) << warnings_.all();
}

TEST_F(S3DeletionsTest, ADeletionThatIsNotWantedAgainIsNotLeftUndone) {
  S3StoreOptions late = options();
  late.late_write_limit = kPatient;
  auto store = open(late);
  refuse_writes(1);
  EXPECT_TRUE(write(*store, 1, 1).ok());
  forget(*store, 1);
  await([&] { return server_.objects().empty() && server_.requests("DELETE") >= 2; });
  EXPECT_TRUE(write(*store, 1, 1).ok());
  store.reset();
  EXPECT_EQ(warnings_.count("this server ends"), 0) << warnings_.all();
}

}  // namespace
}  // namespace loci
