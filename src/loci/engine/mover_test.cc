// Movers on the real CPU backend with random tiny models: whatever way a block's state has gone, a pass that
// waits for it gives the very bits of one that found it on the device.
#include "loci/engine/mover.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "loci/base/random.h"
#include "loci/compute/cpu/cpu_backend.h"
#include "loci/engine/fake_disk_store.h"
#include "loci/model/gguf.h"
#include "loci/model/model.h"
#include "loci/model/random_model.h"

namespace loci {
namespace {

using Tokens = std::vector<TokenId>;
using Bits = std::vector<std::uint32_t>;

constexpr std::uint32_t kVocabulary = 96;
constexpr std::uint32_t kSlots = 24;    // of each pool
constexpr std::uint32_t kBlocks = 3;    // of state that moves; the pass goes on behind it
constexpr std::uint32_t kScratch = 20;  // the device slot that the pass writes

struct TestModel {
  std::vector<std::byte> bytes;
  GgufFile file;
  ModelSpec spec;
};

std::unique_ptr<TestModel> make_model(const std::vector<std::uint32_t>& windows) {
  RandomModelOptions options;
  options.layers = static_cast<std::uint32_t>(windows.size());
  options.tokenizer = false;
  options.vocabulary = kVocabulary;
  std::vector<std::byte> bytes = make_random_model(options).value().to_bytes();
  GgufFile file = std::move(GgufFile::parse(bytes)).value();
  ModelSpec spec = std::move(read_model_spec(file)).value();
  for (std::size_t i = 0; i < windows.size(); ++i) spec.layers[i].window = windows[i];
  return std::make_unique<TestModel>(TestModel{std::move(bytes), std::move(file), std::move(spec)});
}

Tokens text(std::uint64_t seed, std::size_t count) {
  Random random(seed);
  Tokens tokens;
  while (tokens.size() < count) tokens.emplace_back(static_cast<std::uint32_t>(random.below(kVocabulary)));
  return tokens;
}

// How moves have ended. Thread-safe.
class Ends {
 public:
  Mover::Ended listener() {
    return [this](const MovesEnded& ended) {
      std::lock_guard lock(mutex_);
      for (const MoveOutcome& move : ended.moves) {
        EXPECT_TRUE(results_.emplace(move.move, move.result).second) << "a move ends once";
        EXPECT_GE(move.took, 0);
      }
      changed_.notify_all();
    };
  }
  MoveResult wait(OperationId move) {
    std::unique_lock lock(mutex_);
    const bool ended =
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return results_.contains(move); });
    EXPECT_TRUE(ended) << "move " << move.value << " does not end";
    return ended ? results_[move] : MoveResult::kFailed;
  }
  std::size_t count() {
    std::lock_guard lock(mutex_);
    return results_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<OperationId, MoveResult> results_;
};

struct Case {
  const char* name;
  std::vector<std::uint32_t> windows;  // of the layers
};

class MoverTest : public testing::TestWithParam<Case> {
 protected:
  MoverTest() : model_(make_model(GetParam().windows)) {
    backend_ = std::move(make_cpu_backend(model_->spec, {.threads = 2})).value();
    for (std::uint32_t group = 0; group < groups(); ++group) {
      EXPECT_TRUE(backend_->allocate_blocks(group, kSlots).ok());
    }
    // The state that will move lies in slots 0, 1, 2.
    EXPECT_TRUE(run({span(prompt_, 0, kBlocks * kBlockTokens, 0)}).front().ok());
    expected_ = logits_behind(0);
  }

  std::uint32_t groups() const { return static_cast<std::uint32_t>(backend_->info().groups.size()); }
  std::uint32_t layers() const { return model_->spec.layer_count(); }

  void make_mover(MoverOptions options = {}, FakeDiskStore::Faults faults = {}) {
    std::vector<DiskGroup> disk_groups;
    for (const LayerGroup& group : backend_->info().groups) {
      disk_groups.push_back({.layers = static_cast<std::uint32_t>(group.layers.size()),
                             .layer_slice_bytes = group.layer_slice_bytes,
                             .slots = kSlots});
    }
    options.host_blocks.assign(groups(), kSlots);
    options.disk = std::make_unique<FakeDiskStore>(disk_, disk_groups, std::move(faults));
    mover_ = std::move(Mover::make(std::move(options), *backend_, clock_, ends_.listener())).value();
  }

  // Slots `first`, `first` + 1 ... hold the context; the last one is the scratch slot, so that what moves is
  // never written.
  Span span(const Tokens& tokens, std::uint32_t begin, std::uint32_t end, std::uint32_t first) const {
    BlockTable table;
    for (std::uint32_t i = 0; i * kBlockTokens < end; ++i) {
      table.blocks.emplace_back(i < kBlocks ? first + i : kScratch);
    }
    Span span{.tokens = Tokens(tokens.begin() + begin, tokens.begin() + end),
              .position = begin,
              .layers = {0, layers()},
              .logits = LogitsWanted::kAll};
    span.tables.assign(groups(), table);
    return span;
  }
  std::vector<Status> run(std::vector<Span> spans) {
    Pass pass;
    pass.spans = std::move(spans);
    backend_->run(pass, results_);
    std::vector<Status> statuses;
    for (const SpanResult& result : results_) statuses.push_back(result.status);
    return statuses;
  }
  Span span_behind(std::uint32_t first) const {
    return span(prompt_, kBlocks * kBlockTokens, static_cast<std::uint32_t>(prompt_.size()), first);
  }
  Bits logits_behind(std::uint32_t first) {
    EXPECT_TRUE(run({span_behind(first)}).front().ok());
    return bits(results_.front());
  }
  static Bits bits(const SpanResult& result) {
    Bits bits;
    for (const float logit : result.logits) bits.push_back(std::bit_cast<std::uint32_t>(logit));
    return bits;
  }
  // Other state takes the device's slots `first` ....
  void overwrite(std::uint32_t first) {
    EXPECT_TRUE(run({span(text(99, 200), 0, kBlocks * kBlockTokens, first)}).front().ok());
  }

  Move move(Tier from, std::uint32_t from_slot, Tier to, std::uint32_t to_slot, std::uint8_t key) {
    Move move{.id = OperationId(++last_move_), .from = from, .to = to};
    for (std::uint32_t group = 0; group < groups(); ++group) {
      move.parts.push_back({.group = group, .from = SlotId(from_slot), .to = SlotId(to_slot)});
    }
    move.entry.key.bytes[0] = key;
    return move;
  }
  // The state's blocks, from slots `from_slot` on to slots `to_slot` on.
  std::vector<Move> moves(Tier from, std::uint32_t from_slot, Tier to, std::uint32_t to_slot) {
    std::vector<Move> moves;
    for (std::uint32_t i = 0; i < kBlocks; ++i) {
      moves.push_back(move(from, from_slot + i, to, to_slot + i, static_cast<std::uint8_t>(1 + i)));
    }
    return moves;
  }
  static std::vector<OperationId> ids(const std::vector<Move>& moves) {
    std::vector<OperationId> ids;
    for (const Move& move : moves) ids.push_back(move.id);
    return ids;
  }
  void carry_out(std::vector<Move> moves) {
    const std::vector<OperationId> begun = ids(moves);
    mover_->start(std::move(moves), {});
    for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), MoveResult::kDone);
  }
  // The load and the pass that waits for it begin together.
  void expect_loaded(std::vector<Move> loads, std::uint32_t first) {
    const std::vector<OperationId> begun = ids(loads);
    mover_->start(std::move(loads), {});
    EXPECT_EQ(logits_behind(first), expected_);
    for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), MoveResult::kDone);
  }

  const Tokens prompt_ = text(1, kBlocks* kBlockTokens + 7);
  std::unique_ptr<TestModel> model_;
  std::unique_ptr<Backend> backend_;
  std::vector<SpanResult> results_;
  Bits expected_;
  SystemClock clock_;
  FakeDisk disk_;
  Ends ends_;
  std::uint64_t last_move_ = 0;
  std::unique_ptr<Mover> mover_;  // last: it ends first
};

Status after(std::chrono::milliseconds time, Status status = {}) {
  std::this_thread::sleep_for(time);
  return status;
}

TEST_P(MoverTest, StateComesBackFromHostMemoryWhileThePassWaits) {
  make_mover(
      {.before_slice = [](const Move&, std::uint32_t) { return after(std::chrono::milliseconds(1)); }});
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 10));
  overwrite(0);
  expect_loaded(moves(Tier::kHost, 10, Tier::kDevice, 5), 5);
  expect_loaded(moves(Tier::kHost, 10, Tier::kDevice, 0), 0);
}

TEST_P(MoverTest, StateComesBackFromTheDiskWhileThePassWaits) {
  make_mover(
      {}, {.read = [](const DiskReadItem&, std::uint32_t) { return after(std::chrono::milliseconds(1)); }});
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 3));
  overwrite(0);
  expect_loaded(moves(Tier::kDisk, 3, Tier::kDevice, 8), 8);
}

TEST_P(MoverTest, StateGoesThroughBothTiersAndBack) {
  make_mover();
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  overwrite(0);
  carry_out(moves(Tier::kHost, 4, Tier::kDisk, 9));
  carry_out(moves(Tier::kDisk, 9, Tier::kHost, 15));
  expect_loaded(moves(Tier::kHost, 15, Tier::kDevice, 2), 2);
  const MoverStats stats = mover_->stats();
  const std::uint64_t bytes = kBlocks * backend_->info().block_bytes;
  for (const MoverStats::Link& link : {stats.host_save, stats.disk_save, stats.prefetch, stats.host_load}) {
    EXPECT_EQ(link.moves_total, kBlocks);
    EXPECT_EQ(link.bytes_total, bytes);
    EXPECT_EQ(link.failures_total, 0u);
    EXPECT_GT(link.busy, 0);
  }
  EXPECT_EQ(stats.disk_load.moves_total, 0u);
  EXPECT_EQ(stats.queued, 0u);
}

TEST_P(MoverTest, StateIsCopiedInsideTheDevice) {
  make_mover();
  expect_loaded(moves(Tier::kDevice, 0, Tier::kDevice, 12), 12);
}

// From every tier, and from bits that stay what they were.
TEST_P(MoverTest, KeysAreTakenToOtherPositionsOnTheWay) {
  make_mover();
  ASSERT_EQ(backend_->info().positions, Positions::kRotary);
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 4));
  for (const auto& [tier, first] : {std::pair(Tier::kDevice, 0u), {Tier::kHost, 4u}, {Tier::kDisk, 4u}}) {
    std::vector<Move> loads = moves(tier, first, Tier::kDevice, 8);
    for (Move& load : loads) load.rotate_by = -64;
    carry_out(std::move(loads));
    for (std::uint32_t layer = 0; layer < layers(); ++layer) {
      for (std::uint32_t block = 0; block < kBlocks; ++block) {
        std::vector<std::byte> wanted(backend_->info().groups[0].layer_slice_bytes), got(wanted.size());
        backend_->read_layer(SlotId(block), layer, wanted);
        backend_->rotate_keys(layer, -64, wanted);
        backend_->read_layer(SlotId(8 + block), layer, got);
        ASSERT_EQ(got, wanted) << tier_name(tier) << ", layer " << layer << ", block " << block;
      }
    }
    EXPECT_EQ(logits_behind(0), expected_);
    overwrite(8);
  }
  expect_loaded(moves(Tier::kHost, 4, Tier::kDevice, 12), 12);
}

TEST_P(MoverTest, StateOutlivesTheServerOnTheDisk) {
  make_mover();
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 3));
  mover_.reset();
  overwrite(0);
  make_mover();
  std::promise<Recovered> recovered;
  mover_->recover([&](Recovered found) {
    if (found.last) recovered.set_value(std::move(found));
  });
  EXPECT_EQ(recovered.get_future().get().entries.size(), kBlocks * groups());
  expect_loaded(moves(Tier::kDisk, 3, Tier::kDevice, 8), 8);
}

// One block fails in one layer: the span that reads it is poisoned, whoever reads the others is not.
TEST_P(MoverTest, AFailurePoisonsExactlyTheSpansThatReadIt) {
  for (std::uint32_t bad = 0; bad < layers(); ++bad) {
    make_mover({.before_slice = [bad](const Move& load, std::uint32_t layer) {
      const bool fails = load.to == Tier::kDevice && load.entry.key.bytes[0] == 2 && layer == bad;
      return after(std::chrono::milliseconds(1), fails ? internal_error("the link broke") : Status());
    }});
    carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
    std::vector<Move> loads = moves(Tier::kHost, 4, Tier::kDevice, 8);
    const std::vector<OperationId> begun = ids(loads);
    mover_->start(std::move(loads), {});
    // The first block alone; all of them; nothing that moves.
    const Tokens other = text(2, 40);
    BlockTable table{.blocks = {SlotId(8), SlotId(kScratch + 1)}};
    Span first = span(prompt_, kBlockTokens, kBlockTokens + 5, 8);
    first.tables.assign(groups(), table);
    Span own = span(other, 0, 20, 16);
    const std::vector<Status> statuses = run({first, span_behind(8), own});
    EXPECT_TRUE(statuses[0].ok()) << bad;
    EXPECT_EQ(statuses[1].code(), StatusCode::kDataLoss) << bad;
    EXPECT_TRUE(statuses[2].ok()) << bad;
    EXPECT_EQ(ends_.wait(begun[0]), MoveResult::kDone);
    EXPECT_EQ(ends_.wait(begun[1]), MoveResult::kFailed);
    EXPECT_EQ(ends_.wait(begun[2]), MoveResult::kDone);
    // Brought again, by a link that works, it is whole.
    mover_.reset();
    make_mover();
    expect_loaded(moves(Tier::kDevice, 0, Tier::kDevice, 8), 8);
    mover_.reset();
  }
}

TEST_P(MoverTest, WhatTheDiskCannotReadIsToldApart) {
  for (const auto& [code, result] : {std::pair(StatusCode::kDataLoss, MoveResult::kDamaged),
                                     std::pair(StatusCode::kUnavailable, MoveResult::kFailed)}) {
    for (std::uint32_t bad = 0; bad < backend_->info().groups.back().layers.size(); ++bad) {
      const auto last_group = groups() - 1;
      make_mover({}, {.read = [=](const DiskReadItem& item, std::uint32_t layer) {
                   const bool fails = item.key.bytes[0] == 3 && item.group == last_group && layer == bad;
                   return fails ? Status(code, "no such luck") : Status();
                 }});
      carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 4));
      std::vector<Move> loads = moves(Tier::kDisk, 4, Tier::kDevice, 8);
      const std::vector<OperationId> begun = ids(loads);
      mover_->start(std::move(loads), {});
      EXPECT_EQ(run({span_behind(8)}).front().code(), StatusCode::kDataLoss);
      EXPECT_EQ(ends_.wait(begun[0]), MoveResult::kDone);
      EXPECT_EQ(ends_.wait(begun[1]), MoveResult::kDone);
      EXPECT_EQ(ends_.wait(begun[2]), result);
      // Another block's entry in the slot is none of this one's.
      std::vector<Move> foreign;
      foreign.push_back(move(Tier::kDisk, 4, Tier::kDevice, 8, 77));
      const OperationId id = foreign.front().id;
      mover_->start(std::move(foreign), {});
      EXPECT_EQ(ends_.wait(id), MoveResult::kDamaged);
      mover_.reset();
    }
  }
}

TEST_P(MoverTest, AFailedSaveIsToldAndLeavesTheSource) {
  make_mover({.before_slice =
                  [this](const Move& save, std::uint32_t layer) {
                    const bool fails = save.entry.key.bytes[0] == 1 && layer + 1 == layers();
                    return fails ? internal_error("the link broke") : Status();
                  }},
             {.write = [](const DiskEntry& entry) {
               return entry.key.bytes[0] == 2 ? resource_exhausted("the disk is full") : Status();
             }});
  for (const auto& [tier, second] :
       {std::pair(Tier::kHost, MoveResult::kDone), std::pair(Tier::kDisk, MoveResult::kFailed)}) {
    std::vector<Move> saves = moves(Tier::kDevice, 0, tier, 4);
    const std::vector<OperationId> begun = ids(saves);
    mover_->start(std::move(saves), {});
    EXPECT_EQ(ends_.wait(begun[0]), MoveResult::kFailed);
    EXPECT_EQ(ends_.wait(begun[1]), second);
    EXPECT_EQ(ends_.wait(begun[2]), MoveResult::kDone);
  }
  EXPECT_EQ(logits_behind(0), expected_);
  EXPECT_EQ(mover_->stats().disk_save.failures_total, 2u);
  EXPECT_EQ(mover_->stats().queued, 0u);
}

// A disk that does not answer: the load is given up, its slot belongs to others, and what comes late is
// dropped.
TEST_P(MoverTest, ALateLoadIsGivenUpAndWritesNothing) {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  make_mover({.load_limit = 20 * kNanosPerMilli}, {.read = [open](const DiskReadItem&, std::uint32_t layer) {
               if (layer == 1) open.wait();
               return Status();
             }});
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 4));
  std::vector<Move> loads = moves(Tier::kDisk, 4, Tier::kDevice, 8);
  std::vector<OperationId> begun = ids(loads);
  mover_->start(std::move(loads), {});
  EXPECT_EQ(run({span_behind(8)}).front().code(), StatusCode::kDataLoss);
  for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), MoveResult::kTooSlow);
  // A prefetch behind them has not even begun.
  std::vector<Move> prefetches = moves(Tier::kDisk, 4, Tier::kHost, 4);
  begun = ids(prefetches);
  mover_->start(std::move(prefetches), {});
  for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), MoveResult::kTooSlow);
  overwrite(8);
  EXPECT_TRUE(run({span(text(99, 200), kBlocks * kBlockTokens, 100, 8)}).front().ok());
  const Bits others = bits(results_.front());
  gate.set_value();
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 10));
  mover_.reset();  // waits for the store
  EXPECT_TRUE(run({span(text(99, 200), kBlocks * kBlockTokens, 100, 8)}).front().ok());
  EXPECT_EQ(bits(results_.front()), others);
}

TEST_P(MoverTest, LoadsGoBeforeSavesAndLayerByLayer) {
  std::mutex mutex;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order;  // move, layer
  std::promise<void> first_save;
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  make_mover({.before_slice = [&](const Move& moved, std::uint32_t layer) {
    bool first = false;
    {
      std::lock_guard lock(mutex);
      first = order.empty();
      order.emplace_back(moved.id.value, layer);
    }
    if (first) {
      first_save.set_value();
      open.wait();
    }
    return Status();
  }});
  std::vector<Move> saves;
  for (std::uint32_t i = 0; i < 6; ++i) saves.push_back(move(Tier::kDevice, i % 3, Tier::kHost, 4 + i, 1));
  const std::vector<OperationId> saved = ids(saves);
  mover_->start(std::move(saves), {});
  first_save.get_future().wait();
  std::vector<Move> loads = moves(Tier::kDevice, 0, Tier::kDevice, 8);
  const std::vector<OperationId> loaded = ids(loads);
  mover_->start(std::move(loads), {});
  gate.set_value();
  for (const OperationId id : saved) EXPECT_EQ(ends_.wait(id), MoveResult::kDone);
  for (const OperationId id : loaded) EXPECT_EQ(ends_.wait(id), MoveResult::kDone);
  std::vector<std::pair<std::uint64_t, std::uint32_t>> load_order, wanted;
  std::size_t saves_before = 0;
  for (const auto& step : order) {
    if (step.first >= loaded.front().value) {
      load_order.push_back(step);
    } else if (load_order.empty()) {
      ++saves_before;
    }
  }
  for (std::uint32_t layer = 0; layer < layers(); ++layer) {
    for (const OperationId id : loaded) wanted.emplace_back(id.value, layer);
  }
  EXPECT_EQ(load_order, wanted);
  EXPECT_LE(saves_before, layers()) << "at most the part of the save that was being copied";
}

TEST_P(MoverTest, WhatIsOnItsWayToTheDiskIsBounded) {
  std::mutex mutex;
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::set<std::uint64_t> copied;
  const std::uint64_t block_bytes = backend_->info().block_bytes;
  make_mover({.save_buffer_bytes = 2 * block_bytes + block_bytes / 2,
              .before_slice =
                  [&](const Move& save, std::uint32_t) {
                    std::lock_guard lock(mutex);
                    copied.insert(save.id.value);
                    return Status();
                  }},
             {.write = [open](const DiskEntry&) {
               open.wait();
               return Status();
             }});
  std::vector<Move> saves;
  for (std::uint32_t i = 0; i < 6; ++i) saves.push_back(move(Tier::kDevice, i % 3, Tier::kDisk, 4 + i, 1));
  const std::vector<OperationId> begun = ids(saves);
  mover_->start(std::move(saves), {});
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));  // not held up by the disk
  {
    std::lock_guard lock(mutex);
    EXPECT_LE(copied.size(), 2u + kBlocks);
  }
  EXPECT_EQ(ends_.count(), kBlocks);
  gate.set_value();
  for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), MoveResult::kDone);
}

TEST_P(MoverTest, StoppingFailsWhatHasNotComeAndTellsNobody) {
  std::promise<void> began;
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  make_mover({.before_slice = [&](const Move& load, std::uint32_t layer) {
    if (load.to == Tier::kDevice && layer == 0 && load.entry.key.bytes[0] == 1) {
      began.set_value();
      open.wait();
    }
    return Status();
  }});
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 4));
  mover_->start(moves(Tier::kHost, 4, Tier::kDevice, 8), {});
  began.get_future().wait();
  mover_->start(moves(Tier::kHost, 4, Tier::kDevice, 12), {});
  std::thread stopper([&] { mover_.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  gate.set_value();
  stopper.join();
  EXPECT_EQ(run({span_behind(12)}).front().code(), StatusCode::kDataLoss);
  EXPECT_EQ(run({span_behind(8)}).front().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ends_.count(), kBlocks);
}

// Every link at once, with failures: each move ends once, and what a good load brought is right.
TEST_P(MoverTest, ManyMovesAtOnce) {
  Random faults(3);
  make_mover({.before_slice =
                  [&](const Move& moved, std::uint32_t) {  // on the mover's thread alone
                    const bool fails = moved.entry.key.bytes[1] == 1 && faults.below(20) == 0;
                    return fails ? internal_error("the link broke") : Status();
                  }},
             {.read = [](const DiskReadItem& item, std::uint32_t layer) {
               return item.key.bytes[0] == 2 && layer == 0 ? data_loss("flipped") : Status();
             }});
  carry_out(moves(Tier::kDevice, 0, Tier::kHost, 0));
  carry_out(moves(Tier::kDevice, 0, Tier::kDisk, 0));
  std::size_t begun = ends_.count();
  for (int round = 0; round < 40; ++round) {
    std::vector<Move> batch = moves(Tier::kHost, 0, Tier::kDevice, 4);
    const std::vector<OperationId> loads = ids(batch);
    for (Move& failing : moves(Tier::kDevice, 0, Tier::kHost, 8)) {
      failing.entry.key.bytes[1] = 1;
      batch.push_back(std::move(failing));
    }
    for (Move& more : moves(Tier::kDisk, 0, Tier::kDevice, 12)) batch.push_back(std::move(more));
    for (Move& more : moves(Tier::kDisk, 0, Tier::kHost, 16)) batch.push_back(std::move(more));
    for (Move& more : moves(Tier::kHost, 0, Tier::kDisk, 8)) batch.push_back(std::move(more));
    const std::vector<OperationId> all = ids(batch);
    begun += all.size();
    mover_->start(std::move(batch), {});
    ASSERT_EQ(logits_behind(4), expected_) << round;
    for (const OperationId id : all) {
      const MoveResult result = ends_.wait(id);
      if (std::find(loads.begin(), loads.end(), id) != loads.end()) {
        ASSERT_EQ(result, MoveResult::kDone);
      }
    }
  }
  EXPECT_EQ(ends_.count(), begun);
  const MoverStats stats = mover_->stats();
  EXPECT_EQ(stats.disk_load.failures_total, 40u);
  EXPECT_EQ(stats.prefetch.failures_total, 40u);
  EXPECT_EQ(stats.queued, 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, MoverTest,
                         testing::Values(Case{"full", {0, 0, 0}}, Case{"mixed", {80, 0, 80, 0}}),
                         [](const auto& tested) { return tested.param.name; });

TEST(HostTier, RefusesWhatTheMachineDoesNotHave) {
  const auto model = make_model({0, 0});
  const auto backend = std::move(make_cpu_backend(model->spec, {.threads = 1})).value();
  SystemClock clock;
  MoverOptions options;
  options.host_blocks = {UINT32_MAX};
  const auto mover = Mover::make(std::move(options), *backend, clock, [](const MovesEnded&) {});
  ASSERT_FALSE(mover.ok());
  EXPECT_EQ(mover.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(mover.status().field(), "--host-memory");
}

}  // namespace
}  // namespace loci
