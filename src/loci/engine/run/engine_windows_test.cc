// SPDX-License-Identifier: Apache-2.0
// The engine on the CPU backend with models whose layers see windows, and with tiers below the device on
// which transfers fail now and then: in pools too small for what comes, every reply has the tokens and the
// very log-probabilities of a backend that holds all state and computes one token a pass. With passes ahead
// two of three requests are sampled on the device, which gives no log-probabilities.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/random.h"
#include "loci/compute/cpu/cpu_backend.h"
#include "loci/compute/hidden_form.h"
#include "loci/compute/test_model.h"
#include "loci/engine/log/event_log.h"
#include "loci/engine/run/engine.h"
#include "loci/engine/testing/ahead_backend.h"
#include "loci/engine/testing/fake_disk_store.h"

namespace loci {
namespace {

constexpr std::uint32_t kVocabulary = 96;
constexpr std::uint32_t kContext = 640;
constexpr std::uint32_t kHiddenSlots = 60;
constexpr std::uint32_t kCapturePlaces = 12;  // fewer than the blocks of a prompt
constexpr Nanos kDrainMax = 60 * kNanosPerSecond;

using Tokens = std::vector<TokenId>;

std::unique_ptr<TestModel> make_model(const std::vector<std::uint32_t>& windows) {
  return TestModel::make({.type = TensorType::kQ8_0, .vocabulary = kVocabulary}, windows);
}

std::unique_ptr<Backend> make_backend(const TestModel& model, std::uint32_t threads,
                                      const std::vector<std::uint32_t>& blocks) {
  std::unique_ptr<Backend> backend = std::move(make_cpu_backend(model.spec, {.threads = threads})).value();
  for (std::uint32_t group = 0; group < backend->info().groups.size(); ++group) {
    EXPECT_TRUE(backend->allocate_blocks(group, blocks.at(group)).ok());
  }
  return backend;
}

SamplingParams greedy_with_logprobs() {
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

// Holds all state of one sequence.
class Reference {
 public:
  explicit Reference(const TestModel& model)
      : backend_(
            make_backend(model, 1, std::vector<std::uint32_t>(kLayerGroupsMax, kContext / kBlockTokens))),
        layers_(model.spec.layer_count()) {
    for (std::uint32_t i = 0; i < kContext / kBlockTokens; ++i) table_.blocks.emplace_back(i);
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
      std::lock_guard lock(mutex_);
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
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120), [&] { return ended_.has_value(); }));
    return ended_.value_or(GenerationEnded{});
  }
  // While it is held the engine's core waits at this request's next event.
  std::unique_lock<std::mutex> hold_engine() { return std::unique_lock(mutex_); }
  const Reply& reply() const { return reply_; }
  // Against the reference's, which has log-probabilities.
  void expect(Reply reply) {
    if (!logprobs) reply.logprobs.assign(reply.tokens.size(), 0.0f);
    EXPECT_EQ(reply_, reply);
  }

  bool logprobs = true;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Reply reply_;
  std::optional<GenerationEnded> ended_;
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

// Slices that are refused: at random, and the `one_in`th after each at the latest, so that however few there
// are of them a run has one. Each caller has one thread.
std::function<Status()> faults(std::uint32_t one_in, std::uint64_t seed, StatusCode code) {
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
    backend_ = make_backend(*model_, 2, blocks);
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
  // Loading is worth it whatever it costs: these models compute too fast for any disk.
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
                              .write = [refuse](const DiskEntry&) { return (*refuse)(); }});
  }
  void add_hidden(EngineOptions& options, std::vector<DiskGroup>& disk) const {
    const Result<HiddenForm> form = hidden_form(backend_->info());
    ASSERT_TRUE(form.ok());
    const std::uint32_t layers = backend_->info().layers;
    options.mover.host_blocks.clear();
    options.core.hidden = {.disk_blocks = kHiddenSlots,
                           .block_bytes = layers * form->slice_bytes(),
                           .share_percent = GetParam().hidden_percent};
    options.core.costs.projection = 1000;
    options.capture_places = kCapturePlaces;
    disk.push_back({.layers = layers,
                    .layer_slice_bytes = form->slice_bytes(),
                    .slots = kHiddenSlots,
                    .form = StateForm::kHidden});
  }
  // What the model has as hidden states went to the disk, and came from it.
  void expect_hidden() const {
    if (GetParam().hidden_percent == 0) return;
    EXPECT_GT(engine_->stats().hidden_saved_total, 0u);
    EXPECT_GT(engine_->stats().hidden_loaded_total, 0u);
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

  const std::string log_ = testing::TempDir() + "engine_windows_" + GetParam().name + "_" +
                           std::string(restore_rule_name(GetParam().restore)) +
                           (GetParam().even_links ? "_even" : "");
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

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_P(EngineWindows, ResidentForkedEvictedInBatchAndResumed) {
  const Tokens prompt = text(1, 170);
  EXPECT_EQ(check(prompt, 30).cached_tokens, 0u);
  const Tokens history = prompt + last_.tokens;
  const Tokens second = history + text(2, 25);
  EXPECT_EQ(check(second, 20).cached_tokens, history.size() - 1) << "all that was computed is there";
  const Tokens third = second + last_.tokens + text(3, 40);
  // It parts where others went on: behind every window, so what the windows lack is computed again.
  check(Tokens(second.begin(), second.begin() + 90) + text(4, 30), 20);
  // Conversations that take the memory.
  for (std::uint64_t seed = 10; seed < 16; ++seed) check(text(seed, 180), 10);
  check(third, 20);
  // Together, sharing a prefix; there is not room for all.
  std::vector<Tokens> prompts;
  std::vector<std::unique_ptr<Waiter>> waiters;
  for (std::uint64_t i = 0; i < 6; ++i) {
    prompts.push_back(Tokens(third.begin(), third.begin() + 60 * (i % 3)) + text(20 + i, 90));
    waiters.push_back(std::make_unique<Waiter>());
  }
  {
    // None ends before all are there, however slow this thread is.
    const std::unique_lock held = waiters[0]->hold_engine();
    for (std::size_t i = 0; i < prompts.size(); ++i) submit(prompts[i], 120, *waiters[i]);
  }
  std::uint32_t suspensions = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const GenerationEnded ended = waiters[i]->wait();
    ASSERT_TRUE(ended.status.ok()) << ended.status.to_string();
    suspensions += ended.usage.suspensions;
    SCOPED_TRACE(i);
    waiters[i]->expect(reference_.reply(prompts[i], 120));
  }
  if (GetParam().groups[0].window == 0) {
    EXPECT_GT(suspensions, 0u);
  }
  EXPECT_GT(engine_->stats().evictions_total, 0u);
  // Saves that are still on their way hold what they read.
  for (int i = 0; i < 1000 && engine_->stats().blocks_pinned > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(engine_->stats().blocks_pinned, 0u);
  if (GetParam().passes_ahead > 0) {
    EXPECT_GT(ahead_->followed(), 300u);
  }
  const MoverStats moved = engine_->mover_stats();
  // Where there are both, what is loaded comes from either.
  if (GetParam().groups[0].host_blocks > 0 || GetParam().groups[0].disk_blocks > 0) {
    EXPECT_GT(moved.host_load.bytes_total + moved.disk_load.bytes_total, 0u);
  }
  expect_hidden();
  if (GetParam().fails_one_in > 0) {
    EXPECT_GT(
        moved.host_load.failures_total + moved.disk_load.failures_total + moved.host_save.failures_total, 0u);
  }
  engine_.reset();
  const Result<ReplayReport> replayed = replay(log_);
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
  EXPECT_GT(replayed->compared, 200u);
  std::remove(log_.c_str());
}

class EngineOnDisk : public EngineWindows {};

// The next engine has what the disk holds, and its log replays too.
TEST_P(EngineOnDisk, StateOutlivesTheEngine) {
  check(text(1, 170), 30);
  const Tokens second = text(1, 170) + last_.tokens + text(2, 25);
  // Within its grace a drain saves what is not saved yet; an engine that just ends begins no save.
  engine_->drain(kDrainMax);
  ASSERT_TRUE(engine_->wait_drained(kDrainMax));
  engine_.reset();
  const std::uint64_t entries = disk_.slots.size();
  // Else the first write may have failed, and the disk is left alone.
  const bool sound = GetParam().fails_one_in == 0;
  EXPECT_TRUE(entries > 0 || !sound);
  start();
  const auto known = [&] {
    const CoreStats stats = engine_->stats();
    return stats.recovered_total + stats.orphans_total;
  };
  for (int i = 0; i < 1000 && known() < entries; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const Usage usage = check(second, 20);
  if (sound) {
    EXPECT_GT(engine_->stats().recovered_total, 0u);
    EXPECT_GE(usage.cached_tokens, 160u);
    EXPECT_GT(engine_->mover_stats().disk_load.bytes_total, 0u);
    if (GetParam().hidden_percent > 0) {
      EXPECT_GT(engine_->stats().hidden_loaded_total, 0u);
    }
  }
  engine_.reset();
  const Result<ReplayReport> replayed = replay(log_);
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
  std::remove(log_.c_str());
}

class EngineRestores : public EngineWindows {};

// A conversation whose state is taken from it before each turn: whatever plan brings it back, the bits are
// those of computing.
TEST_P(EngineRestores, TheBitsOfComputing) {
  Tokens history = text(1, 250);
  check(history, 6);
  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    std::vector<std::unique_ptr<Waiter>> others;
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      others.push_back(std::make_unique<Waiter>());
      submit(text(100 + 10 * turn + seed, 180), 4, *others.back());
    }
    for (const auto& other : others) EXPECT_TRUE(other->wait().status.ok());
    history = history + last_.tokens + text(2 + turn, 20);
    check(history, 6);
  }
  const CoreStats stats = engine_->stats();
  const std::uint64_t loaded = stats.tokens_from_total[1] + stats.tokens_from_total[2];
  const std::uint64_t too_slow = stats.tokens_missed_total[static_cast<std::size_t>(MissReason::kTooSlow)];
  if (GetParam().restore == RestoreRule::kRecompute) {
    EXPECT_EQ(loaded, 0u);
    EXPECT_GT(too_slow, 0u);
  } else if (GetParam().restore == RestoreRule::kKv) {
    EXPECT_GT(loaded, 0u);
  }
  // (How much the other plans load follows from how fast this machine computes; the core's worlds, which have
  // a time of their own, hold them to loading in parts.)
  engine_.reset();
  const Result<ReplayReport> replayed = replay(log_);
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
  std::remove(log_.c_str());
}

class EngineBesideAHang : public EngineWindows {};

// Others' requests are answered while the disk hangs, and who needs what it holds is when it answers again.
TEST_P(EngineBesideAHang, OthersGoOn) {
  constexpr Nanos kHangs = 3 * kNanosPerSecond, kGapMax = kNanosPerSecond;
  engine_.reset();
  token_cost_ = 20 * kNanosPerMilli;  // a pass is not predicted to take seconds
  start();
  const Tokens prompt = text(1, 170);
  check(prompt, 10);
  const Tokens again = prompt + last_.tokens + text(2, 20);
  const Reply expected = reference_.reply(again, 10);
  for (const bool beside : {true, false}) {  // it comes while others decode, or alone
    for (std::uint64_t seed = 10; seed < 16; ++seed) check(text(seed, 180), 10);
    hangs_ = true;
    Waiter other, waits;
    if (beside) submit(text(30, 20), 120, other);
    submit(again, 10, waits);
    const Nanos begin = clock_.now();
    Nanos slowest = 0;
    for (std::uint64_t seed = 40; clock_.now() - begin < kHangs; ++seed) {
      const Nanos sent = clock_.now();
      check(text(seed, 20), 5);
      slowest = std::max(slowest, clock_.now() - sent);
    }
    EXPECT_LT(slowest, kGapMax) << (beside ? "beside decodes" : "alone");
    hangs_ = false;
    hangs_.notify_all();
    EXPECT_TRUE(waits.wait().status.ok());
    waits.expect(expected);
    if (beside) {
      EXPECT_TRUE(other.wait().status.ok());
    }
  }
}

const auto kOnDisk = testing::Values(
    Case{"full_disk", {0, 0}, {{0, 26, 0, 100}}}, Case{"full_tiers", {0, 0}, {{0, 26, 20, 100}}, 8},
    Case{"mixed_disk", {48, 0, 48, 48}, {{0, 26, 0, 100}, {48, 24, 0, 60}}},
    Case{"mixed_tiers", {48, 0, 48, 48}, {{0, 26, 20, 100}, {48, 24, 20, 60}}, 15},
    Case{"full_hidden", {0, 0}, {{0, 26, 0, 60}}, 0, 0, RestoreRule::kAuto, false, 100},
    Case{"two_forms", {0, 0}, {{0, 26, 0, 60}}, 0, 0, RestoreRule::kAuto, false, 60},
    Case{"two_forms_faults", {0, 0}, {{0, 26, 0, 60}}, 8, 0, RestoreRule::kAuto, false, 60},
    Case{"full_tiers_ahead", {0, 0}, {{0, 26, 20, 100}}, 8, 1},
    Case{"mixed_tiers_ahead", {48, 0, 48, 48}, {{0, 26, 20, 100}, {48, 24, 20, 60}}, 15, 1});
std::string name_of(const testing::TestParamInfo<Case>& tested) { return tested.param.name; }

INSTANTIATE_TEST_SUITE_P(Models, EngineOnDisk, kOnDisk, name_of);
INSTANTIATE_TEST_SUITE_P(Models, EngineBesideAHang,
                         testing::Values(Case{"full_hang", {0, 0}, {{0, 26, 0, 100}}}), name_of);
INSTANTIATE_TEST_SUITE_P(ModelsOnDisk, EngineWindows, kOnDisk, name_of);
// Every plan forced, with links that fail.
std::vector<Case> forced_plans() {
  const Case shapes[] = {
      {"disk", {0, 0}, {{0, 26, 0, 100}}},
      {"tiers", {0, 0}, {{0, 26, 20, 100}}, 15},
      {"tiers_ahead", {0, 0}, {{0, 26, 20, 100}}, 15, 1},
      {"hidden", {0, 0}, {{0, 26, 0, 60}}, 15, 0, RestoreRule::kAuto, true, 70},
      {"windows", {48, 0, 48, 48}, {{0, 26, 20, 100}, {48, 24, 20, 60}}, 15},  // whole tiers
  };
  std::vector<Case> cases;
  for (const Case& shape : shapes) {
    for (std::size_t rule = 0; rule < kRestoreRules.size(); ++rule) {
      const auto plan = static_cast<RestoreRule>(rule);
      const bool mixes = plan == RestoreRule::kAuto || plan == RestoreRule::kNaiveHybrid;
      if (shape.passes_ahead > 0 && !mixes) continue;
      if (shape.groups.size() > 1 && plan != RestoreRule::kAuto && plan != RestoreRule::kPensieve) continue;
      Case& forced = cases.emplace_back(shape);
      forced.restore = plan;
      forced.even_links = true;
    }
  }
  return cases;
}
std::string plan_name_of(const testing::TestParamInfo<Case>& tested) {
  std::string name =
      std::string(tested.param.name) + "_" + std::string(restore_rule_name(tested.param.restore));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Plans, EngineRestores, testing::ValuesIn(forced_plans()), plan_name_of);

INSTANTIATE_TEST_SUITE_P(
    Models, EngineWindows,
    testing::Values(Case{"full_host", {0, 0}, {{0, 26, 100}}},
                    Case{"mixed_host", {48, 0, 48, 48}, {{0, 26, 100}, {48, 24, 60}}, 60},
                    Case{"full", {0, 0}, {{0, 26}}}, Case{"window", {48, 48, 48}, {{48, 20}}},
                    Case{"mixed", {48, 0, 48, 48}, {{0, 26}, {48, 24}}},
                    Case{"three", {70, 0, 33, 33}, {{0, 26}, {70, 26}, {33, 22}}},
                    Case{"full_host_ahead", {0, 0}, {{0, 26, 100}}, 0, 1},
                    Case{"three_ahead", {70, 0, 33, 33}, {{0, 26}, {70, 26}, {33, 22}}, 0, 1}),
    name_of);

}  // namespace
}  // namespace loci
