// SPDX-License-Identifier: Apache-2.0
// The engine on the CPU backend with models whose layers see windows, and with tiers below the device on
// which transfers fail now and then. The pools are too small for the requests. Every reply is compared with
// that of a backend that holds all state and computes one token a pass: the tokens and the exact
// log-probabilities. With passes ahead two of three requests are sampled on the device, which gives no
// log-probabilities.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/folder_testing.h"
#include "loci/base/mutex.h"
#include "loci/base/random.h"
#include "loci/compute/cpu/cpu_backend.h"
#include "loci/compute/hidden_form.h"
#include "loci/compute/model_testing.h"
#include "loci/engine/log/event_log.h"
#include "loci/engine/run/engine.h"
#include "loci/engine/testing/ahead_backend_testing.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/disk_store_testing.h"

namespace loci {

inline constexpr std::uint32_t kVocabulary = 96;
inline constexpr std::uint32_t kContext = 640;
inline constexpr std::uint32_t kCapturePlaces = 12;  // fewer than the blocks of a prompt
inline constexpr Nanos kDrainMax = 60 * kNanosPerSecond;

inline std::unique_ptr<TestModel> make_model(const std::vector<std::uint32_t>& windows) {
  return TestModel::make({.type = TensorType::kQ8_0, .vocabulary = kVocabulary}, windows);
}

inline std::unique_ptr<Backend> make_backend(const TestModel& model, const CpuBackendOptions& machine,
                                             const std::vector<std::uint32_t>& blocks) {
  std::unique_ptr<Backend> backend = std::move(make_cpu_backend(model.spec, machine)).value();
  for (std::uint32_t group = 0; group < backend->info().groups.size(); ++group) {
    EXPECT_TRUE(backend->allocate_blocks(group, blocks.at(group)).ok());
  }
  return backend;
}

inline SamplingParams greedy_with_logprobs() {
  SamplingParams params;
  params.temperature = 0;
  params.logprobs = true;
  return params;
}

struct Reply {
  Tokens tokens;
  std::vector<float> logprobs;
  bool operator==(const Reply&) const = default;
};

// A backend that holds all state of one sequence.
class Reference {
 public:
  explicit Reference(const TestModel& model)
      : backend_(make_backend(model, {.threads = 1},
                              std::vector<std::uint32_t>(kLayerGroupsMax, kContext / kBlockTokens))),
        layers_(model.spec.layer_count()) {
    std::vector<SlotId> slots;
    for (std::uint32_t i = 0; i < kContext / kBlockTokens; ++i) slots.emplace_back(i);
    table_.blocks = slots;
  }
  Reply reply(const Tokens& prompt, std::size_t count) {
    Sampler sampler(greedy_with_logprobs(), prompt, {}, kVocabulary);
    Reply reply;
    Tokens tokens = prompt;
    for (std::uint32_t i = 0; reply.tokens.size() < count; ++i) {
      Span span{.tokens = {tokens[i]}, .position = i, .layers = {0, layers_}, .logits = LogitsWanted::kLast};
      span.tables.assign(backend_->info().groups.size(), table_);
      Pass pass;
      pass.spans.push_back(std::move(span));
      run_pass(*backend_, pass, results_);
      if (i + 1 < tokens.size()) continue;
      const Sampled sampled = sampler.sample(results_[0].logits).value();
      reply.tokens.push_back(sampled.token);
      reply.logprobs.push_back(sampled.chosen.logprob);
      tokens.push_back(sampled.token);
    }
    return reply;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::uint32_t layers_;
  BlockTable table_;
  std::vector<SpanResult> results_;
};

class Waiter {
 public:
  GenerationListener listener() {
    return [this](const GenerationEvent& event) {
      const MutexLock lock(mutex_);
      if (const auto* token = std::get_if<GeneratedToken>(&event)) {
        reply_.tokens.push_back(token->token);
        reply_.logprobs.push_back(token->chosen.logprob);
      }
      if (const auto* ended = std::get_if<GenerationEnded>(&event)) {
        ended_ = *ended;
        changed_.notify_all();
      }
    };
  }
  GenerationEnded wait() {
    MutexLock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120),
                                  [this]() REQUIRES(mutex_) { return ended_.has_value(); }));
    return ended_.value_or(GenerationEnded{});
  }
  // While it is held the engine's core waits at this request's next event.
  MutexLock hold_engine() LOCI_THREAD_ANNOTATION(no_thread_safety_analysis)
      LOCI_THREAD_ANNOTATION(acquire_capability(mutex_)) {
    return MutexLock(mutex_);
  }
  Reply reply() {
    const MutexLock lock(mutex_);
    return reply_;
  }
  // Compares the reply with the reference's, which has log-probabilities.
  void expect(Reply reply) {
    const MutexLock lock(mutex_);
    if (!logprobs) reply.logprobs.assign(reply.tokens.size(), 0.0f);
    EXPECT_EQ(reply_, reply);
  }

  bool logprobs = true;

 private:
  Mutex mutex_{LockOrder::kOuter};  // a test that holds the engine submits meanwhile
  Condition changed_;
  Reply reply_ GUARDED_BY(mutex_);
  std::optional<GenerationEnded> ended_ GUARDED_BY(mutex_);
};

struct Case {
  const char* name;
  std::vector<std::uint32_t> windows;  // of the layers
  std::vector<CoreGroup> groups;
  std::uint32_t fails_one_in = 0;  // transfers between tiers
  std::uint32_t passes_ahead = 0;
  RestoreRule restore = RestoreRule::kAuto;
  // Loads of a block are predicted to take as long as computing it, so that plans mix both; else no time.
  bool even_links = false;
  std::uint32_t hidden_percent = 0;  // of the blocks, that go to the disk as hidden states
};

inline std::uint64_t seed_of(const Case& tested) {
  auto seed = static_cast<std::uint64_t>(tested.restore);
  for (const char* at = tested.name; *at != 0; ++at) seed = mix64(seed ^ static_cast<std::uint64_t>(*at));
  return seed;
}

// Refuses slices at random, and at the latest the `one_in`th one after each refusal, so that even a short run
// has one. Each caller has one thread.
inline std::function<Status()> faults(std::uint32_t one_in, std::uint64_t seed, StatusCode code) {
  if (one_in == 0) return [] { return Status(); };
  return [one_in, code, random = Random(seed), left = std::uint64_t{0}]() mutable {
    if (left == 0) left = 1 + random.below(one_in);
    return --left == 0 ? Status(code, "an error that the test wants") : Status();
  };
}

class EngineWindows : public testing::TestWithParam<Case> {
 protected:
  EngineWindows() : model_(make_model(GetParam().windows)), reference_(*model_) { start(); }
  void start() {
    std::vector<std::uint32_t> blocks;
    for (const CoreGroup& group : GetParam().groups) blocks.push_back(group.block_count);
    backend_ = make_backend(*model_, choose_machine(), blocks);
    ahead_ = std::make_unique<AheadBackend>(*backend_);
    EngineOptions options;
    options.core.groups = GetParam().groups;
    options.core.layers = model_->spec.layer_count();
    options.core.context_tokens = kContext;
    options.core.max_batch_tokens = 80;
    options.core.max_running = 6;
    options.core.passes_ahead = GetParam().passes_ahead;
    options.core.restore = restore_rule_name(GetParam().restore);
    options.event_log_path = log_;
    options.event_log_secret = LoggedSecret::kKept;  // the disk outlives the engine
    add_tiers(options);
    Backend& device = GetParam().passes_ahead > 0 ? *ahead_ : *backend_;
    engine_ = std::move(Engine::start(std::move(options), device, clock_)).value();
  }
  // Bits depend on neither; an engine that starts again may have others.
  CpuBackendOptions choose_machine() {
    const std::vector<InstructionSet> sets = available_instruction_sets();
    const auto threads = static_cast<std::uint32_t>(1 + machines_.below(3));
    return {.threads = threads, .instruction_set = sets[machines_.below(sets.size())]};
  }
  // Makes loading always worth while: these models compute faster than any disk.
  void add_tiers(EngineOptions& options) {
    const Case& tested = GetParam();
    std::vector<DiskGroup> disk;
    for (std::size_t i = 0; i < tested.groups.size(); ++i) {
      const LayerGroup& group = backend_->info().groups[i];
      options.core.groups[i].block_bytes = group.block_bytes;
      options.mover.host_blocks.push_back(tested.groups[i].host_blocks);
      disk.push_back({.layers = static_cast<std::uint32_t>(group.layers.size()),
                      .layer_slice_bytes = group.layer_slice_bytes,
                      .slots = tested.groups[i].disk_blocks});
    }
    if (tested.hidden_percent > 0) add_hidden(options, disk);
    options.core.costs.token = token_cost_;
    if (tested.even_links) {
      CostCurves& costs = options.core.costs;
      const Nanos block_seconds = kBlockTokens * token_cost_ / kNanosPerSecond;
      costs.host_load.bytes_per_second = costs.disk_read.bytes_per_second =
          options.core.groups[0].block_bytes / static_cast<std::uint64_t>(block_seconds);
    }
    options.core.hole_records = 100;
    options.mover.before_slice = [refuse = faults(tested.fails_one_in, 1, StatusCode::kInternal)](
                                     const Move&, std::uint32_t) { return refuse(); };
    if (tested.groups[0].disk_blocks == 0) return;
    // The store's thread reads and writes.
    const auto refuse =
        std::make_shared<std::function<Status()>>(faults(tested.fails_one_in, 2, StatusCode::kDataLoss));
    options.mover.disk = std::make_unique<FakeDiskStore>(
        disk_, disk,
        FakeDiskStore::Faults{.read =
                                  [this, refuse](const BlockRead&, std::uint32_t) {
                                    hangs_.wait(true);
                                    return (*refuse)();
                                  },
                              .write = [refuse](const BlockEntry&) { return (*refuse)(); }});
  }
  void add_hidden(EngineOptions& options, std::vector<DiskGroup>& disk) const {
    const Result<HiddenForm> form = hidden_form(backend_->info());
    ASSERT_TRUE(form.ok());
    const std::uint32_t layers = backend_->info().layers;
    options.mover.host_blocks.clear();
    options.core.hidden = {.disk_blocks = GetParam().groups[0].disk_blocks,
                           .block_bytes = layers * form->slice_bytes(),
                           .share = {.percent = GetParam().hidden_percent}};
    options.core.costs.projection = 1000;
    options.capture_places = kCapturePlaces;
    disk.push_back({.layers = layers,
                    .layer_slice_bytes = form->slice_bytes(),
                    .slots = GetParam().groups[0].disk_blocks,
                    .form = StateForm::kHidden});
  }
  // What the model has as hidden states went to the disk, and came from it; among faults, of loads and of
  // writes, it depends on their order whether any of it does.
  void expect_hidden() const {
    if (GetParam().hidden_percent == 0) return;
    EXPECT_GT(engine_->stats().hidden_saved_total, 0u);
    if (GetParam().fails_one_in == 0) {
      EXPECT_GT(engine_->stats().hidden_loaded_total, 0u);
    }
  }
  Usage check(const Tokens& prompt, std::uint32_t count) {
    Waiter waiter;
    submit(prompt, count, waiter);
    const GenerationEnded ended = waiter.wait();
    EXPECT_TRUE(ended.status.ok()) << ended.status.to_string();
    waiter.expect(reference_.reply(prompt, count));
    last_ = waiter.reply();
    return ended.usage;
  }
  // Six requests at the same time, which have beginnings of `shared` in common, are answered as the reference
  // does. Returns how often one was suspended.
  std::uint32_t check_together(const Tokens& shared, std::uint64_t seed) {
    std::vector<Tokens> prompts;
    std::vector<std::unique_ptr<Waiter>> waiters;
    for (std::uint64_t i = 0; i < 6; ++i) {
      prompts.push_back(Tokens(shared.begin(), shared.begin() + 60 * (i % 3)) + text(seed + i, 90));
      waiters.push_back(std::make_unique<Waiter>());
    }
    {
      // None ends before all are there, however slow this thread is.
      const MutexLock held = waiters[0]->hold_engine();
      for (std::size_t i = 0; i < prompts.size(); ++i) submit(prompts[i], 120, *waiters[i]);
    }
    std::uint32_t suspensions = 0;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const GenerationEnded ended = waiters[i]->wait();
      EXPECT_TRUE(ended.status.ok()) << ended.status.to_string();
      suspensions += ended.usage.suspensions;
      SCOPED_TRACE(i);
      waiters[i]->expect(reference_.reply(prompts[i], 120));
    }
    return suspensions;
  }
  // (Else what is not saved yet gives way, and is computed again.)
  void await_saves() const {
    const Nanos begin = clock_.now();
    while (clock_.now() - begin < kDrainMax) {
      const CoreStats stats = engine_->stats();
      if (stats.moves_in_flight == 0 && stats.saves_waiting == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "saves do not end";
  }
  void submit(const Tokens& prompt, std::uint32_t count, Waiter& waiter) {
    GenerationRequest request;
    request.prompt = prompt;
    request.sampling = greedy_with_logprobs();
    request.sampling.logprobs = waiter.logprobs = GetParam().passes_ahead == 0 || submitted_++ % 3 == 0;
    request.max_new_tokens = count;
    engine_->submit(std::move(request), waiter.listener());
  }
  static Tokens text(std::uint64_t seed, std::size_t count) {
    Random random(seed);
    Tokens tokens;
    while (tokens.size() < count) tokens.emplace_back(static_cast<std::uint32_t>(random.below(kVocabulary)));
    return tokens;
  }

  const TestFolder folder_;
  const std::string log_ = folder_.file("events");
  Random machines_{seed_of(GetParam())};
  SystemClock clock_;
  std::unique_ptr<TestModel> model_;
  Reference reference_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<AheadBackend> ahead_;
  std::uint32_t submitted_ = 0;
  Nanos token_cost_ = kNanosPerSecond;
  std::atomic<bool> hangs_{false};  // the disk does not answer
  FakeDisk disk_;
  std::unique_ptr<Engine> engine_;
  Reply last_;
};

// Each plan forced on each of the shapes, where links bring a block in about the time of computing it; with
// passes ahead those that load and compute at once.
inline std::vector<Case> forced_plans(const std::vector<Case>& shapes) {
  std::vector<Case> cases;
  for (const Case& shape : shapes) {
    for (std::size_t rule = 0; rule < kRestoreRules.size(); ++rule) {
      const auto plan = static_cast<RestoreRule>(rule);
      const bool mixes = plan == RestoreRule::kAuto || plan == RestoreRule::kNaiveHybrid;
      if (shape.passes_ahead > 0 && !mixes) continue;
      Case& forced = cases.emplace_back(shape);
      forced.restore = plan;
      forced.even_links = true;
    }
  }
  return cases;
}
inline std::string plan_name_of(const testing::TestParamInfo<Case>& tested) {
  std::string name =
      std::string(tested.param.name) + "_" + std::string(restore_rule_name(tested.param.restore));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

inline std::string name_of(const testing::TestParamInfo<Case>& tested) { return tested.param.name; }

}  // namespace loci
