// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/mover/hidden_captures.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/base/mutex.h"
#include "loci/compute/backend_testing.h"

namespace loci {
namespace {

constexpr std::uint32_t kLayers = 2;
constexpr std::uint64_t kRow = 3;

// Counts the buffers that passes have been given, and those of them that are not freed.
class CountingBackend : public EmptyBackend {
 public:
  using EmptyBackend::EmptyBackend;
  Result<HostMemory> allocate_host(std::uint64_t bytes) override {
    LOCI_ASSIGN_OR_RETURN(HostMemory memory, EmptyBackend::allocate_host(bytes));
    ++allocated;
    ++live;
    const auto held = std::make_shared<HostMemory>(std::move(memory));
    return HostMemory(held->data(), held->size(), [this, held] { --live; });
  }
  int allocated = 0;
  std::atomic<int> live = 0;
};

// The copying thread stops here before each copy, unless it is let through. Thread-safe.
class Gate {
 public:
  void pass() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const std::uint64_t number = ++came_;
    changed_.wait(lock, [&]() REQUIRES(mutex_) { return number <= let_through_; });
  }
  // Stops all that have not come yet.
  void shut() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    let_through_ = came_;
  }
  void let_one_through() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ++let_through_;
    changed_.notify_all();
  }
  void open() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    let_through_ = UINT64_MAX;
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  Condition changed_;
  std::uint64_t came_ GUARDED_BY(mutex_) = 0;
  std::uint64_t let_through_ GUARDED_BY(mutex_) = UINT64_MAX;
};

template <class Value>
bool is_ready(const std::future<Value>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// Passes of one sequence in slots of its own; a row's bytes tell its layer and token.
class HiddenCapturesTest : public testing::Test {
 protected:
  HiddenCapturesTest() {
    info_.layers = kLayers;
    info_.groups = {{.layers = {0, 1}}};
    info_.hidden_row_bytes = kRow;
    make({.places = 2, .share = {.percent = 100}});
  }
  ~HiddenCapturesTest() override { gate_.open(); }
  void make(HiddenCapturesOptions options) {
    captures_.reset();
    backend_ = std::make_unique<CountingBackend>(info_);
    options.before_copy = [this] { gate_.pass(); };
    captures_ = std::move(HiddenCaptures::make(*backend_, std::move(options))).value();
  }

  static std::byte byte_of(std::uint32_t layer, std::uint32_t position) {
    return static_cast<std::byte>(layer * 100 + position % 97);
  }
  static Span span(std::uint32_t begin, std::uint32_t end, std::vector<std::uint32_t> slots) {
    Span span{.position = begin, .layers = {0, kLayers}};
    for (std::uint32_t i = begin; i < end; ++i) span.tokens.emplace_back(i * 7);
    span.tables = {BlockTable{std::vector<SlotId>(slots.begin(), slots.end())}};
    return span;
  }
  // As a backend would.
  void run(Pass pass, bool ok = true) {
    begin(pass);
    end(pass, ok);
  }
  void begin(Pass& pass) {
    captures_->begin(pass);
    for (const Span& one : pass.spans) {
      for (std::uint32_t layer = 0; layer < one.capture.size(); ++layer) {
        for (std::uint32_t token = 0; token < one.tokens.size(); ++token) {
          for (std::uint64_t i = 0; i < kRow; ++i)
            one.capture[layer][token * kRow + i] = byte_of(layer, one.position + token) ^ salt_;
        }
      }
    }
  }
  void end(const Pass& pass, bool ok = true, std::optional<std::uint32_t> sample = {}) {
    std::vector<SpanResult> results(pass.spans.size());
    if (!ok) results[0].status = data_loss("the test says so");
    if (sample) results[0].sample = TokenId(*sample);
    captures_->end(results);
  }
  static Pass pass_of(Span one) {
    Pass pass;
    pass.spans.push_back(std::move(one));
    return pass;
  }
  void run(Span one, bool ok = true) {
    Pass pass;
    pass.spans.push_back(std::move(one));
    run(std::move(pass), ok);
  }
  static BlockEntry entry(std::uint32_t block) {
    BlockEntry entry;
    entry.depth = block + 1;
    for (std::uint32_t i = 0; i < kBlockTokens; ++i)
      entry.tokens[i] = TokenId((block * kBlockTokens + i) * 7);
    return entry;
  }
  // What there is when the passes that have ended before are copied.
  std::span<const std::byte> open(std::uint32_t slot, const BlockEntry& of) {
    const std::uint64_t passes = captures_->ended();
    EXPECT_TRUE(eventually([&] { return captures_->is_copied(passes); }));
    return captures_->open(SlotId(slot), of);
  }
  // Whole, and every byte right.
  bool has(std::uint32_t slot, std::uint32_t block) {
    const std::span<const std::byte> rows = open(slot, entry(block));
    if (rows.empty()) return false;
    EXPECT_EQ(rows.size(), kLayers * kBlockTokens * kRow);
    for (std::uint64_t i = 0; i < rows.size(); ++i) {
      const auto layer = static_cast<std::uint32_t>(i / (kBlockTokens * kRow));
      const auto token = static_cast<std::uint32_t>(i / kRow % kBlockTokens);
      EXPECT_EQ(rows[i], byte_of(layer, block * kBlockTokens + token)) << i;
    }
    captures_->close(SlotId(slot));
    return true;
  }

  BackendInfo info_;
  std::unique_ptr<CountingBackend> backend_;
  Gate gate_;
  std::byte salt_{};  // of the bytes of passes that begin
  std::unique_ptr<HiddenCaptures> captures_;
};

TEST_F(HiddenCapturesTest, ABlockFillsOverPasses) {
  run(span(0, 20, {5}));
  run(span(20, 21, {5}));
  EXPECT_FALSE(has(5, 0)) << "not whole";
  run(span(21, 40, {5, 6}));
  EXPECT_TRUE(has(5, 0));
  EXPECT_FALSE(has(5, 0)) << "it is given once";
  run(span(40, 64, {5, 6}));
  EXPECT_TRUE(has(6, 1));
}

TEST_F(HiddenCapturesTest, BlocksThatWillBeKeysAndValuesHaveNone) {
  make({.places = 2, .share = {.percent = 50, .from_block = 1}});  // block 2 is hidden, and 4
  Pass pass = pass_of(span(0, 64, {5, 6, 7}));
  begin(pass);
  EXPECT_TRUE(pass.spans[0].capture.empty());
  end(pass);
  run(span(64, 128, {5, 6, 7, 8}));
  EXPECT_FALSE(has(5, 0) || has(6, 1) || has(8, 3));
  EXPECT_TRUE(has(7, 2));
  EXPECT_EQ(captures_->stats().displaced_total, 0u);
}

TEST_F(HiddenCapturesTest, ItIsOfItsTokensAtTheirPlace) {
  run(span(0, 32, {5}));
  EXPECT_TRUE(open(5, entry(1)).empty());
  BlockEntry other = entry(0);
  other.tokens[31] = TokenId(0);
  EXPECT_TRUE(open(5, other).empty());
  EXPECT_TRUE(has(5, 0));
}

TEST_F(HiddenCapturesTest, WhatLacksARowIsNone) {
  run(span(0, 10, {5}));
  run(span(12, 32, {5}));  // two rows were computed without it
  EXPECT_FALSE(has(5, 0));
  run(span(0, 10, {5}));
  run(span(10, 20, {5}), false);
  run(span(10, 32, {5}));  // again; but the first ten are gone with the pass that failed
  EXPECT_FALSE(has(5, 0));
  run(span(0, 10, {5}));
  captures_->forget(SlotId(5));  // a load
  run(span(10, 32, {5}));
  EXPECT_FALSE(has(5, 0));
  run(span(0, 10, {5}));
  Pass copied;
  copied.copies.push_back({SlotId(9), SlotId(5), 10, 0});
  copied.spans.push_back(span(10, 32, {5}));
  run(std::move(copied));
  EXPECT_FALSE(has(5, 0));
  Span late = span(0, 32, {5});
  late.tables[0].write_from = 8;  // its first rows are there
  run(std::move(late));
  EXPECT_FALSE(has(5, 0));
  run(span(0, 32, {5}));
  EXPECT_TRUE(has(5, 0)) << "from the first row on it is whole";
}

TEST_F(HiddenCapturesTest, TheOldestGivesWayButNotToItsOwnPass) {
  run(span(0, 32, {5}));
  run(span(0, 32, {6}));
  run(span(0, 32, {7}));
  EXPECT_FALSE(has(5, 0));
  EXPECT_EQ(captures_->stats().displaced_total, 1u);
  EXPECT_TRUE(has(7, 0));
  run(span(0, 96, {1, 2, 3}));
  EXPECT_TRUE(has(1, 0));
  EXPECT_TRUE(has(2, 1));
  EXPECT_FALSE(has(3, 2)) << "there are two places";
  EXPECT_EQ(captures_->stats().unplaced_total, 1u);
}

// A pass begins while the one before it is in flight, and is fed its samples.
TEST_F(HiddenCapturesTest, PassesAheadFillBlocksToo) {
  const auto decode = [](std::uint32_t at) {
    Span fed = span(at, at + 1, {5, 6});
    fed.tokens[0] = TokenId(UINT32_MAX);
    fed.token_of = 0;
    return pass_of(std::move(fed));
  };
  Pass before = pass_of(span(0, 28, {5}));
  begin(before);
  for (std::uint32_t at = 28; at < 33; ++at) {
    Pass next = decode(at);
    begin(next);
    end(before, true, at * 7);  // the token at `at`
    before = std::move(next);
  }
  end(before);
  EXPECT_TRUE(has(5, 0));
  // A sample that is another token; one that did not come.
  for (const std::optional<std::uint32_t> sample : {std::optional(5u), std::optional<std::uint32_t>()}) {
    before = pass_of(span(0, 31, {5}));
    begin(before);
    Pass next = decode(31);
    begin(next);
    end(before, true, sample);
    end(next);
    EXPECT_FALSE(has(5, 0));
  }
}

TEST_F(HiddenCapturesTest, WhatAPassAheadComputedInVainIsReplaced) {
  run(span(0, 20, {5}));
  run(span(20, 21, {5}));
  Span other = span(20, 32, {5});
  run(std::move(other));
  EXPECT_TRUE(has(5, 0)) << "the 21st row came twice";
  // In flight it is replaced, too.
  Pass first = pass_of(span(0, 21, {5})), second = pass_of(span(20, 32, {5}));
  begin(first);
  begin(second);
  end(first);
  end(second);
  EXPECT_TRUE(has(5, 0));
}

TEST_F(HiddenCapturesTest, WhatIsForgottenInFlightIsNotAdded) {
  Pass first = pass_of(span(0, 20, {5})), second = pass_of(span(20, 32, {5}));
  begin(first);
  captures_->forget(SlotId(5));  // a load
  begin(second);
  end(first);
  end(second);
  EXPECT_FALSE(has(5, 0));
  begin(first = pass_of(span(0, 32, {5})));
  captures_->forget(SlotId(5));
  end(first);
  EXPECT_FALSE(has(5, 0));
  begin(first = pass_of(span(0, 20, {5})));
  begin(second = pass_of(span(20, 32, {5})));
  end(first, false);  // its span fails, so what follows lacks rows
  end(second);
  EXPECT_FALSE(has(5, 0));
  run(span(0, 32, {5}));
  EXPECT_TRUE(has(5, 0));
}

TEST_F(HiddenCapturesTest, WhatIsReadStays) {
  run(span(0, 32, {5}));
  const std::span<const std::byte> rows = open(5, entry(0));
  ASSERT_FALSE(rows.empty());
  run(span(0, 64, {6, 7}));
  captures_->forget(SlotId(5));
  EXPECT_FALSE(has(7, 1)) << "one of two places is being read";
  EXPECT_EQ(captures_->stats().unplaced_total, 1u);
  EXPECT_EQ(rows[0], byte_of(0, 0));
  EXPECT_EQ(rows.back(), byte_of(1, 31));
  captures_->close(SlotId(5));
  run(span(0, 32, {5}));
  EXPECT_TRUE(has(5, 0));
}

TEST_F(HiddenCapturesTest, OpeningWaitsForNobody) {
  gate_.shut();
  run(span(0, 32, {5}));
  EXPECT_FALSE(captures_->is_copied(1));
  EXPECT_TRUE(captures_->open(SlotId(5), entry(0)).empty());
  gate_.open();
  EXPECT_TRUE(has(5, 0));
}

// There is a pass to copy at every moment, because each copy is let through when another pass has ended.
TEST_F(HiddenCapturesTest, PassesThatEndLaterAreNotAwaited) {
  gate_.shut();
  run(span(0, 32, {5}));
  std::future<bool> opened = std::async(std::launch::async, [this] { return has(5, 0); });
  EXPECT_TRUE(eventually([&] {
    run(span(0, 32, {6}));
    gate_.let_one_through();
    return is_ready(opened);
  }));
  gate_.open();
  EXPECT_TRUE(opened.get());
}

// Likewise, but each pass computes the same block again, to other bytes.
TEST_F(HiddenCapturesTest, WhatIsReadIsNotBeingWritten) {
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    std::atomic<int> ended{0};
    gate_.shut();
    run(span(0, 32, {5}));
    std::future<void> read = std::async(std::launch::async, [&] {
      const std::span<const std::byte> rows = open(5, entry(0));
      if (rows.empty()) return;
      const std::vector<std::byte> before(rows.begin(), rows.end());
      const int until = ended + 3;
      EXPECT_TRUE(eventually([&] { return ended >= until; }));
      EXPECT_EQ(before, std::vector<std::byte>(rows.begin(), rows.end()));
      captures_->close(SlotId(5));
    });
    EXPECT_TRUE(eventually([&] {
      salt_ ^= std::byte{255};
      run(span(0, 32, {5}));
      gate_.let_one_through();
      ++ended;
      return is_ready(read);
    }));
    gate_.open();
    read.get();
    EXPECT_FALSE(has(6, 0)) << "nothing is in it; but all copies have ended";
  }
}

TEST_F(HiddenCapturesTest, StatsWaitForNobody) {
  gate_.shut();
  run(span(0, 32, {5}));
  std::future<CaptureStats> stats = std::async(std::launch::async, [this] { return captures_->stats(); });
  EXPECT_TRUE(eventually([&] { return is_ready(stats); }));
  gate_.open();
  EXPECT_EQ(stats.get().places, 2u);
}

TEST_F(HiddenCapturesTest, BuffersOfDroppedPassesAreUsedAgain) {
  make({.places = 2, .share = {.percent = 100}, .waiting_rows = 32});
  for (int round = 0; round < 10; ++round) {
    gate_.shut();
    run(span(0, 32, {5}));
    run(span(0, 32, {6}));  // it has to be dropped: a block's rows wait already
    gate_.open();
    EXPECT_TRUE(has(5, 0));
    EXPECT_FALSE(has(6, 0)) << "it was dropped";
  }
  EXPECT_EQ(backend_->allocated, 2) << "two passes had buffers at a time";
}

// It has no place among the passes that wait: those would be as many as the thread has fallen behind.
TEST_F(HiddenCapturesTest, ADroppedPassIsForgottenBeforeEarlierOnesAreCopied) {
  make({.places = 2, .share = {.percent = 100}, .waiting_rows = 52});
  gate_.shut();
  run(span(0, 32, {5}));
  run(span(0, 20, {6}));
  run(span(20, 21, {6}));  // it has to be dropped, and with it the rows before it
  Pass next = pass_of(span(21, 32, {6}));
  begin(next);
  EXPECT_TRUE(next.spans[0].capture.empty()) << "its block lacks a row";
  end(next);
  Pass anew = pass_of(span(0, 32, {6}));
  begin(anew);
  gate_.open();
  EXPECT_TRUE(has(5, 0));
  EXPECT_FALSE(has(6, 0));
  end(anew);
  EXPECT_TRUE(has(6, 0)) << "another pass computes all of it";
}

// Passes that waited at one time leave no memory that nobody needs any more.
TEST_F(HiddenCapturesTest, BuffersOfAnIdleServerAreFew) {
  for (const std::uint64_t spare_bytes : {1u << 20, 200u, 10u}) {  // a pass takes 192
    make({.places = 8, .share = {.percent = 100}, .spare_bytes = spare_bytes});
    gate_.shut();
    for (std::uint32_t slot = 0; slot < 6; ++slot) run(span(0, 32, {slot}));
    EXPECT_EQ(backend_->live.load(), 6);
    gate_.open();
    for (std::uint32_t slot = 0; slot < 6; ++slot) EXPECT_TRUE(has(slot, 0));
    const int kept = spare_bytes < 2 * 192 ? 1 : 2;
    EXPECT_TRUE(eventually([&] { return backend_->live == kept; })) << backend_->live.load();
    run(span(0, 32, {7}));
    EXPECT_TRUE(has(7, 0));
    EXPECT_EQ(backend_->allocated, 6) << "what is kept is used";
  }
}

TEST_F(HiddenCapturesTest, ASmallPassLeavesTheLargeBuffer) {
  for (int round = 0; round < 3; ++round) {
    Pass large = pass_of(span(0, 32, {5})), small = pass_of(span(0, 1, {6}));
    begin(large);
    begin(small);
    end(large);
    end(small);  // its buffer is the last to be given back
    EXPECT_TRUE(has(5, 0));
  }
  EXPECT_EQ(backend_->allocated, 2);
}

}  // namespace
}  // namespace loci
