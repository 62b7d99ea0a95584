// SPDX-License-Identifier: Apache-2.0
// Which parts of a prompt are read while another member computes the rest. (Here no peer has any state, so
// the engine computes what a read asks for.)
#include "loci/serve/generation/early_reads.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/engine/testing/engine_testing.h"
#include "loci/serve/generation/generation_services.h"

namespace loci {
namespace {

namespace asio = boost::asio;

class EarlyReadsTest : public testing::Test {
 protected:
  static EngineOptions some_options() {
    EngineOptions out = options(2'000);
    out.core.context_tokens = 40'000;
    out.core.max_batch_tokens = 1'024;
    out.core.max_running = 1;
    return out;
  }
  void read(EarlyReader& reader, std::uint32_t tokens) {
    std::future<void> done = asio::co_spawn(io_, reader.read(tokens), asio::use_future);
    // A worker resumes it.
    while (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      io_.restart();
      io_.run_for(std::chrono::milliseconds(1));
    }
    done.get();
  }
  static void wait(const EarlyReader& reader) {
    for (int i = 0; i < 60'000 && reader.reads()->now().is_open(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(reader.reads()->now().is_open());
  }
  // It takes the only place in a batch.
  void begin_long_reply() {
    running_ = world_.engine->submit({.tenant = "acme",
                                      .prompt = some_prompt(2, 40),
                                      .sampling = {},
                                      .max_new_tokens = 1'000,
                                      .stop_tokens = {},
                                      .time_limit = {}},
                                     long_reply_.listener());
  }
  void end_long_reply() { world_.engine->cancel(running_); }
  // Of the prompt's state, what a request for all of it finds.
  std::uint32_t cached() {
    Record record;
    world_.engine->submit({.tenant = work_.tenant,
                           .prompt = prompt_,
                           .sampling = {},
                           .max_new_tokens = 1,
                           .stop_tokens = {},
                           .time_limit = {},
                           .salt = work_.salt},
                          record.listener());
    record.wait();
    return record.cached();
  }

  Record long_reply_;  // it outlives the engine
  RequestId running_;
  World world_{some_options(), std::chrono::milliseconds(20)};
  asio::io_context io_;
  WorkerPool workers_{1};
  std::vector<TokenId> prompt_ = some_prompt(1, 2'000);
  PrefillWork work_{.tenant = "acme", .salt = "salt", .tokens = {}, .text = {}};
};

TEST(EarlyReadPace, AReadIsWorthItsPrice) {
  EarlyReadPace pace;
  EXPECT_EQ(pace.next(200, 4'000), std::nullopt) << "too little is new";
  EXPECT_EQ(pace.next(530, 4'000), 512u) << "whole blocks";
  pace.begin(512);
  EXPECT_TRUE(pace.is_open() && pace.is_queued());
  EXPECT_EQ(pace.next(1'024, 4'000), std::nullopt) << "one at a time";
  pace.started({.shared = 512});
  EXPECT_TRUE(pace.is_open() && !pace.is_queued());
  pace.ended(StatusCode::kOk);
  EXPECT_EQ(pace.next(767, 4'000), std::nullopt);
  EXPECT_EQ(pace.next(768, 4'000), 768u);
  EXPECT_EQ(pace.next(3'999, 4'000), 3'968u);
  EXPECT_EQ(pace.next(4'000, 4'000), std::nullopt) << "the request itself reads the rest";
  pace.begin(3'200);
  pace.ended(StatusCode::kResourceExhausted);
  EXPECT_EQ(pace.next(3'615, 40'000), std::nullopt) << "an eighth of what is there";
  EXPECT_EQ(pace.next(3'616, 40'000), 3'616u);
  EXPECT_EQ(pace.tokens(), 512u);
}

// What was loaded ahead for a read that waited is there, though the request took its place.
TEST(EarlyReadPace, WhatWasLoadedAheadOfAReadCameFromPeers) {
  EarlyReadPace pace;
  pace.begin(512);
  pace.started({.device = 96, .shared = 416});
  pace.ended(StatusCode::kOk);
  pace.begin(1'024);
  pace.ended(StatusCode::kOk);
  EXPECT_EQ(pace.tokens(), 928u);
  const ContextSources found = pace.as_read({.device = 800, .shared = 400});
  EXPECT_EQ(found.device, 96u);
  EXPECT_EQ(found.shared, 1'104u);
}

// What a peer was said to have and did not give is computed by the read, which is the last one then.
TEST(EarlyReadPace, WhatDoesNotComeIsComputed) {
  for (const std::uint32_t lost : {0u, 32u, 64u}) {
    EarlyReadPace pace;
    pace.begin(512);
    pace.started({.shared = 512, .computed = {1}});
    pace.restored({.shared = 512 - lost, .computed = {1 + lost}});
    pace.ended(StatusCode::kOk);
    EXPECT_EQ(pace.tokens(), 512 - lost);
    EXPECT_EQ(pace.computed(), 1 + lost);
    EXPECT_EQ(pace.is_over(), lost > 32);
  }
}

TEST(EarlyReadPace, AReadThatDoesNotPayIsTheLast) {
  const auto is_over = [](const ContextSources& first, const ContextSources& second, StatusCode end) {
    EarlyReadPace pace;
    pace.begin(512);
    pace.started(first);
    pace.ended(StatusCode::kOk);
    pace.begin(1'024);
    pace.started(second);
    pace.ended(end);
    EXPECT_EQ(pace.next(4'000, 40'000).has_value(), !pace.is_over());
    return pace.is_over();
  };
  EXPECT_FALSE(is_over({.shared = 512}, {.device = 512, .shared = 512}, StatusCode::kOk));
  EXPECT_FALSE(is_over({.host = 512}, {.device = 512, .shared = 512}, StatusCode::kOk)) << "from before";
  EXPECT_TRUE(is_over({.shared = 512}, {.host = 512, .shared = 512}, StatusCode::kOk)) << "brought back";
  EXPECT_TRUE(is_over({.shared = 512}, {.device = 512, .computed = {512}}, StatusCode::kOk));
  EXPECT_TRUE(is_over({.shared = 512}, {.device = 512, .shared = 512}, StatusCode::kUnavailable));
}

TEST(EarlyReadPace, WhatTheyBroughtCameFromPeers) {
  struct Case {
    std::uint32_t had, read;             // before the first read; by all of them
    std::uint32_t device, host, shared;  // as the request found it
    std::uint32_t device_wanted, host_wanted, shared_wanted;
  };
  for (const Case& one : {
           Case{0, 2'000, 2'000, 0, 100, 0, 0, 2'100},
           Case{4'000, 2'000, 6'000, 0, 100, 4'000, 0, 2'100},    // of a conversation that was here
           Case{4'000, 2'000, 4'000, 0, 2'000, 4'000, 0, 2'000},  // still on their way: it found them as such
           Case{0, 2'000, 500, 1'500, 0, 0, 0, 2'000},            // some had to leave the device again
           Case{0, 2'000, 0, 0, 2'000, 0, 0, 2'000},              // all had
           Case{4'000, 2'000, 3'000, 0, 0, 3'000, 0, 0},          // and more
           Case{0, 0, 1'000, 0, 0, 1'000, 0, 0},
       }) {
    EarlyReadPace pace;
    pace.begin(one.read);
    pace.started({.device = one.had, .shared = one.read});
    const ContextSources got = pace.as_read({.device = one.device, .host = one.host, .shared = one.shared});
    EXPECT_EQ(got.device, one.device_wanted);
    EXPECT_EQ(got.host, one.host_wanted);
    EXPECT_EQ(got.shared, one.shared_wanted);
  }
}

TEST_F(EarlyReadsTest, WholeBlocksAreThereForTheRequest) {
  EarlyReader reader(*world_.engine, workers_, work_, prompt_);
  read(reader, 1'000);
  wait(reader);
  EXPECT_EQ(cached(), 31 * kBlockTokens + 1) << "and the token that the request computed";
  EXPECT_EQ(reader.reads()->now().tokens(), 0u) << "no peer had any of it";
}

TEST_F(EarlyReadsTest, FewTokensAreNotWorthARead) {
  EarlyReader reader(*world_.engine, workers_, work_, prompt_);
  read(reader, 255);
  EXPECT_FALSE(reader.reads()->now().is_open());
  EXPECT_EQ(cached(), 0u);
}

TEST_F(EarlyReadsTest, NothingBehindThePromptIsRead) {
  prompt_.resize(512);
  EarlyReader reader(*world_.engine, workers_, work_, prompt_);
  read(reader, 512);  // all of its blocks: the request itself reads them
  read(reader, 4'000'000'000);
  EXPECT_FALSE(reader.reads()->now().is_open());
}

TEST_F(EarlyReadsTest, WhoWaitsIsNotHeldUp) {
  begin_long_reply();
  EarlyReader reader(*world_.engine, workers_, work_, prompt_);
  for (int i = 0; i < 60'000 && world_.engine->stats().running == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  read(reader, 512);
  EXPECT_FALSE(reader.reads()->now().is_open()) << "there is no place in the batch";
  end_long_reply();
  EXPECT_EQ(cached(), 0u);
}

// Here no peer has any of it: the other member would compute it, and this one too.
TEST_F(EarlyReadsTest, AReadThatFindsNothingIsTheLast) {
  EarlyReader reader(*world_.engine, workers_, work_, prompt_);
  read(reader, 512);
  wait(reader);
  EXPECT_TRUE(reader.reads()->now().is_over());
  EXPECT_EQ(reader.reads()->now().computed(), 513u);
  read(reader, 1'600);
  EXPECT_EQ(cached(), 513u);
}

// What a worker submits, since its keys take a while.
TEST_F(EarlyReadsTest, LongPromptsAreReadToo) {
  prompt_ = some_prompt(1, kTokensSubmittedHere + 2'000);
  EarlyReader reader(*world_.engine, workers_, work_, prompt_);
  read(reader, kTokensSubmittedHere + 64);
  wait(reader);
  EXPECT_EQ(cached(), kTokensSubmittedHere + 65);
}

TEST_F(EarlyReadsTest, ARefusedReadIsTheLast) {
  world_.engine->drain(kNanosPerSecond);
  EarlyReader reader(*world_.engine, workers_, work_, prompt_);
  read(reader, 512);
  wait(reader);
  EXPECT_TRUE(reader.reads()->now().is_over());
  read(reader, 1'600);
  EXPECT_FALSE(reader.reads()->now().is_open());
}

TEST_F(EarlyReadsTest, WhatNobodyWantsIsCancelled) {
  std::uint64_t seed = 10;
  // It takes half a second to compute it all. On a busy machine that may be over before it is cancelled: then
  // another one is read.
  EXPECT_TRUE(in_one_try(10, [&] {
    prompt_ = some_prompt(seed++, 30'000);
    EarlyReader reader(*world_.engine, workers_, work_, prompt_);
    read(reader, 29'000);
    reader.cancel();
    wait(reader);
    return cached() < 29'000;
  }));
}

}  // namespace
}  // namespace loci
