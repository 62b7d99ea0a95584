// SPDX-License-Identifier: Apache-2.0
// Shared by tests of movers: a random tiny model on the CPU backend, whose copies may go on after their calls
// as a GPU's do; state in some of its slots; and the expected result of a pass that reads this state.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/base/random.h"
#include "loci/compute/cpu/cpu_backend.h"
#include "loci/compute/model_testing.h"
#include "loci/engine/mover/mover.h"
#include "loci/engine/testing/behind_backend_testing.h"
#include "loci/engine/testing/disk_store_testing.h"

namespace loci {

using Tokens = std::vector<TokenId>;
using Bits = std::vector<std::uint32_t>;

inline constexpr std::uint32_t kVocabulary = 96;
inline constexpr std::uint32_t kSlots = 24;    // of each pool
inline constexpr std::uint32_t kBlocks = 3;    // of state that moves; the pass reads it
inline constexpr std::uint32_t kScratch = 20;  // the device slot that the pass writes

inline std::unique_ptr<TestModel> make_model(const std::vector<std::uint32_t>& windows) {
  return TestModel::make({.vocabulary = kVocabulary}, windows);
}

inline Tokens text(std::uint64_t seed, std::size_t count) {
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
      const MutexLock lock(mutex_);
      for (const MoveOutcome& move : ended.moves) {
        EXPECT_TRUE(results_.emplace(move.move, move).second) << "a move ends once";
        EXPECT_GE(move.took, 0);
      }
      changed_.notify_all();
    };
  }
  MoveResult wait(OperationId move) {
    MutexLock lock(mutex_);
    const bool ended = changed_.wait_for(lock, std::chrono::seconds(60),
                                         [&]() REQUIRES(mutex_) { return results_.contains(move); });
    EXPECT_TRUE(ended) << "move " << move.value << " does not end";
    return ended ? results_[move].result : MoveResult::kFailed;
  }
  // It has ended.
  MoveOutcome outcome(OperationId move) {
    const MutexLock lock(mutex_);
    return results_.at(move);
  }
  std::size_t count() {
    const MutexLock lock(mutex_);
    return results_.size();
  }

 private:
  Mutex mutex_;
  Condition changed_;
  std::map<OperationId, MoveOutcome> results_ GUARDED_BY(mutex_);
};

struct Case {
  const char* name;
  std::vector<std::uint32_t> windows;  // of the layers
  std::uint32_t copy_layers = 0;       // layers of a copy; 0: copies end within their calls
  // Makes another backend than the CPU's.
  std::unique_ptr<Backend> (*make)(const ModelSpec& spec) = nullptr;
};

class MoverTest : public testing::TestWithParam<Case> {
 protected:
  MoverTest() : model_(make_model(GetParam().windows)) {
    backend_ = GetParam().make != nullptr ? GetParam().make(model_->spec)
                                          : std::move(make_cpu_backend(model_->spec, {.threads = 2})).value();
    if (GetParam().copy_layers > 0) {
      const std::uint64_t slice_bytes = backend_->info().groups[0].layer_slice_bytes;
      auto behind =
          std::make_unique<BehindBackend>(std::move(backend_), GetParam().copy_layers * slice_bytes);
      behind_ = behind.get();
      backend_ = std::move(behind);
    }
    for (std::uint32_t group = 0; group < groups(); ++group) {
      EXPECT_TRUE(backend_->allocate_blocks(group, kSlots).ok());
    }
    // Puts the state that will move into slots 0, 1, 2.
    EXPECT_TRUE(run({span(prompt_, 0, kBlocks * kBlockTokens, 0)}).front().ok());
    expected_ = logits_behind(0);
  }

  std::uint32_t groups() const { return static_cast<std::uint32_t>(backend_->info().groups.size()); }
  std::uint32_t layers() const { return model_->spec.layer_count(); }
  // The layers that arrive together, in the order of arrival.
  std::vector<std::vector<std::uint32_t>> steps() const {
    const BackendInfo& info = backend_->info();
    const auto run = static_cast<std::size_t>(
        std::max<std::uint64_t>(1, info.copy_bytes / info.groups[0].layer_slice_bytes));
    std::vector<std::vector<std::uint32_t>> steps;
    for (std::uint32_t layer = 0; layer < layers(); ++layer) {
      for (const LayerGroup& group : backend_->info().groups) {
        for (std::size_t i = 0; i < group.layers.size(); i += run) {
          if (group.layers[i] != layer) continue;
          const auto begin = group.layers.begin() + static_cast<std::ptrdiff_t>(i);
          steps.emplace_back(begin,
                             begin + static_cast<std::ptrdiff_t>(std::min(run, group.layers.size() - i)));
        }
      }
    }
    return steps;
  }

  void make_mover(MoverOptions options = {}, FakeDiskStore::Faults faults = {}) {
    std::vector<DiskGroup> disk_groups;
    for (const LayerGroup& group : backend_->info().groups) {
      disk_groups.push_back({.layers = static_cast<std::uint32_t>(group.layers.size()),
                             .layer_slice_bytes = group.layer_slice_bytes,
                             .slots = kSlots});
    }
    // Of a test that is about no limit the machine may take its time.
    if (options.load_limit == MoverOptions().load_limit) options.load_limit = 600 * kNanosPerSecond;
    options.host_blocks.assign(groups(), kSlots);
    options.disk = std::make_unique<FakeDiskStore>(disk_, disk_groups, std::move(faults));
    mover_ = std::move(Mover::make(std::move(options), *backend_, clock_, ends_.listener())).value();
  }

  // Slots `first`, `first` + 1 ... hold the context; the last one is the scratch slot, so that the state that
  // moves is never written.
  Span span(const Tokens& tokens, std::uint32_t begin, std::uint32_t end, std::uint32_t first) const {
    std::vector<SlotId> slots;
    for (std::uint32_t i = 0; i * kBlockTokens < end; ++i) {
      slots.emplace_back(i < kBlocks ? first + i : kScratch);
    }
    Span span{.tokens = Tokens(tokens.begin() + begin, tokens.begin() + end),
              .position = begin,
              .layers = {0, layers()},
              .logits = LogitsWanted::kAll};
    span.tables.assign(groups(), BlockTable{slots});
    return span;
  }
  std::vector<Status> run(std::vector<Span> spans) {
    Pass pass;
    pass.spans = std::move(spans);
    run_pass(*backend_, pass, results_);
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
  // Overwrites the device's slots from `first` on with other state.
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
  // Moves of the state's blocks, from the slots at `from_slot` to those at `to_slot`.
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
  // Begins the loads and a pass that waits for them at the same time.
  void expect_loaded(std::vector<Move> loads, std::uint32_t first) {
    const std::vector<OperationId> begun = ids(loads);
    mover_->start(std::move(loads), {});
    EXPECT_EQ(logits_behind(first), expected_);
    for (const OperationId id : begun) EXPECT_EQ(ends_.wait(id), MoveResult::kDone);
  }

  const Tokens prompt_ = text(1, kBlocks* kBlockTokens + 7);
  std::unique_ptr<TestModel> model_;
  std::unique_ptr<Backend> backend_;
  BehindBackend* behind_ = nullptr;  // the same backend, if its copies go on after their calls
  std::vector<SpanResult> results_;
  Bits expected_;
  SystemClock clock_;
  FakeDisk disk_;
  Ends ends_;
  std::uint64_t last_move_ = 0;
  std::unique_ptr<Mover> mover_;  // last: it ends first
};

inline Status after(std::chrono::milliseconds time, Status status = {}) {
  std::this_thread::sleep_for(time);
  return status;
}

inline std::string case_name(const testing::TestParamInfo<Case>& tested) { return tested.param.name; }

}  // namespace loci
