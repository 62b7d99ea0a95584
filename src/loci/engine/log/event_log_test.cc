// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/log/event_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/folder_testing.h"
#include "loci/base/random.h"
#include "loci/engine/log/event_log_codec.h"

namespace loci {
namespace {

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spill(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // some file systems flush a file that is rewritten
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// One group, with a disk.
CoreConfig small_config() {
  CoreConfig config;
  config.groups = {{.window = 0, .block_count = 8, .disk_blocks = 2, .block_bytes = 64}};
  config.layers = 1;
  config.context_tokens = 100;
  config.hole_records = 1;
  return config;
}

class EventLog : public testing::Test {
 protected:
  // Requests that arrive, are computed, and now and then are cancelled: so many steps, run and logged.
  void write_log(std::uint64_t steps) {
    CoreConfig config = small_config();
    config.chain_secret.fill(0x5a);
    Core core = Core::make(config).value();
    EventLogWriter writer = EventLogWriter::create(path_, config, LoggedSecret::kLeftOut).value();
    std::uint64_t requests = 0;
    std::optional<PassDone> in_flight;
    for (std::uint64_t step = 0; step < steps; ++step) {
      Event event = Tick{};
      if (step % 4 == 0) {
        const std::vector<TokenId> prompt(1 + step % 40, TokenId(5));
        event = Arrival{RequestId(++requests), "g", prompt, 6, 0, {}, kNever};
      } else if (step % 11 == 10) {
        event = Cancel{RequestId(requests)};
      } else if (in_flight) {
        event = std::exchange(in_flight, std::nullopt).value();
      }
      const Nanos now = static_cast<Nanos>(step) * 1000;
      const Plan plan = core.step(now, event);
      EXPECT_TRUE(writer.append_event(now, event).ok());
      EXPECT_TRUE(writer.append_plan(plan).ok());
      if (!plan.pass) continue;
      in_flight = PassDone{plan.pass->id, {}};
      for (const SpanPlan& span : plan.spans) {
        SpanOutcome outcome;
        if (span.sample) outcome.sample = TokenId(7);
        in_flight->spans.push_back(outcome);
      }
    }
  }

  const TestFolder folder_;
  const std::string path_ = folder_.file("events");
  const std::string before_ = path_ + ".1";  // of the process before
};

TEST_F(EventLog, ReplaysToTheSamePlans) {
  constexpr std::uint64_t kSteps = 200;
  write_log(kSteps);
  const auto report = replay(path_);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->steps, kSteps);
  EXPECT_EQ(report->compared, kSteps);
  EXPECT_FALSE(report->truncated);
}

TEST_F(EventLog, IsForItsOwnerAndHoldsNoSecret) {
  write_log(10);
  const auto permissions = std::filesystem::status(path_).permissions();
  EXPECT_EQ(permissions, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(slurp(path_).find(std::string(32, 0x5a)), std::string::npos);
}

TEST_F(EventLog, IsForItsOwnerWhoeverCouldReadTheFileBefore) {
  spill(path_, "LOCILOG\nolder");
  std::filesystem::permissions(path_, std::filesystem::perms{0644});
  write_log(1);
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms{0600});
}

// A server that crashed is started again, by whatever watches over it, before anybody has looked at its log.
TEST_F(EventLog, KeepsTheLogOfTheProcessBefore) {
  spill(path_, "");
  write_log(10);
  EXPECT_FALSE(std::filesystem::exists(before_)) << "an empty file is no log";
  for (const std::uint64_t steps : {20u, 30u}) {
    const std::string last = slurp(path_);
    write_log(steps);
    EXPECT_EQ(slurp(before_), last);
    EXPECT_EQ(replay(path_)->steps, steps);
  }
  EXPECT_EQ(replay(before_)->steps, 20u);
}

TEST_F(EventLog, KeepsTheLogThatALinkNames) {
  const std::string link = path_ + ".link";
  write_log(10);
  std::filesystem::create_symlink(path_, link);
  const std::string last = slurp(path_);
  EXPECT_TRUE(EventLogWriter::create(link, small_config(), LoggedSecret::kLeftOut).ok());
  EXPECT_EQ(slurp(before_), last);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  std::filesystem::remove(link);
}

TEST_F(EventLog, IsOneProcessesAtATime) {
  const CoreConfig config = small_config();
  {
    EventLogWriter writer = EventLogWriter::create(path_, config, LoggedSecret::kLeftOut).value();
    ASSERT_TRUE(writer.append_event(0, Tick{}).ok());
    const std::string written = slurp(path_);
    const Status refused = EventLogWriter::create(path_, config, LoggedSecret::kLeftOut).status();
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
    EXPECT_EQ(refused.message(),
              path_ + ": another process writes its events there; stop it, or name another file");
    EXPECT_EQ(slurp(path_), written);
    EXPECT_FALSE(std::filesystem::exists(before_));
    ASSERT_TRUE(writer.append_event(1, Tick{}).ok());
  }
  EXPECT_TRUE(EventLogWriter::create(path_, config, LoggedSecret::kLeftOut).ok()) << "its end gives it free";
}

// Whoever names the model's file must not find it renamed, and after the next start gone.
TEST_F(EventLog, LeavesFilesOfOtherKindsAsTheyAre) {
  const auto refused = [&](const std::string& file) {
    const Status status = EventLogWriter::create(path_, small_config(), LoggedSecret::kLeftOut).status();
    EXPECT_EQ(status.field(), "event_log");
    EXPECT_EQ(status.message(), file +
                                    ": expected an event log, which begins with LOCILOG, or no file, "
                                    "found another file; name another one");
  };
  spill(path_, "GGUF");
  std::filesystem::permissions(path_, std::filesystem::perms{0644});
  refused(path_);
  EXPECT_EQ(slurp(path_), "GGUF");
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms{0644});
  spill(path_, "LOCI");  // a log that was cut off
  spill(before_, "GGUF");
  refused(before_);
  EXPECT_EQ(slurp(before_), "GGUF");
  std::filesystem::remove(before_);
  EXPECT_TRUE(EventLogWriter::create(path_, small_config(), LoggedSecret::kLeftOut).ok());
  EXPECT_EQ(slurp(before_), "LOCI");
}

TEST_F(EventLog, RefusesAFileThatCannotBeSetAside) {
  write_log(10);
  const std::string last = slurp(path_);
  std::filesystem::create_directory(before_);
  const Status refused = EventLogWriter::create(path_, small_config(), LoggedSecret::kLeftOut).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_NE(refused.message().find(before_), std::string::npos) << refused.message();
  EXPECT_EQ(slurp(path_), last);
}

TEST_F(EventLog, LeavesOutTheSecretOfADiskUnlessAsked) {
  CoreConfig config = small_config();
  config.chain_secret.fill(0x5a);
  const std::string secret(32, 0x5a);
  EventLogWriter::create(path_, config, LoggedSecret::kKept).value();
  EXPECT_NE(slurp(path_).find(secret), std::string::npos);
  const auto log_recovered = [&](std::vector<RecoveredEntry> entries) {
    EventLogWriter writer = EventLogWriter::create(path_, config, LoggedSecret::kLeftOut).value();
    Core core = Core::make(config).value();
    Recovered event;
    event.last = true;
    event.entries = std::move(entries);
    ASSERT_TRUE(writer.append_event(0, event).ok());
    ASSERT_TRUE(writer.append_plan(core.step(0, event)).ok());
    EXPECT_EQ(slurp(path_).find(secret), std::string::npos);
  };
  log_recovered({});
  EXPECT_EQ(replay(path_)->compared, 1u) << "an empty disk needs none";
  log_recovered({{.entry = {}, .group = 0, .hole = false, .slot = SlotId(1)}});
  const Status status = replay(path_).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("step 1: the disk held entries"), std::string::npos) << status.message();
}

TEST(EventLogCodec, KeepsEveryPolicy) {
  CoreConfig config = small_config();
  static_cast<PolicySet&>(config) = {.eviction = "retention",
                                     .admission = "relaxed-fpf",
                                     .admission_looks = 7,
                                     .restore = "pensieve",
                                     .reuse = false,
                                     .save = "ahead",
                                     .swap_out_percent = 11,
                                     .swap_chunk_tokens = 96,
                                     .decode_reserve_percent = 3,
                                     .lookahead_requests = 5,
                                     .prefetch_percent = 60,
                                     .preload = "buffer",
                                     .preload_retries = 9,
                                     .batch = "split"};
  std::string bytes;
  encode_config(config, LoggedSecret::kLeftOut, bytes);
  EXPECT_EQ(static_cast<const PolicySet&>(decode_config(bytes)->core), config);
}

TEST_F(EventLog, NamesTheFirstPlanThatDiffers) {
  // A log whose third plan is another one's.
  CoreConfig config;
  config.groups = {{.window = 0, .block_count = 8}};
  config.layers = 1;
  config.context_tokens = 100;
  Core core = Core::make(config).value();
  EventLogWriter writer = EventLogWriter::create(path_, config, LoggedSecret::kKept).value();
  for (std::uint64_t i = 1; i <= 4; ++i) {
    const Arrival arrival{RequestId(i), "g", {TokenId(1)}, 1, 0, {}, kNever};
    ASSERT_TRUE(writer.append_event(0, arrival).ok());
    Plan plan = core.step(0, arrival);
    if (i == 3) plan.wake_at = 12345;
    ASSERT_TRUE(writer.append_plan(plan).ok());
  }
  const Status status = replay(path_).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message().rfind("step 3: the replayed plan differs", 0), 0u) << status.message();
}

TEST_F(EventLog, ATruncatedTailReplaysUpToTheLastWholeRecord) {
  constexpr std::uint64_t steps = 30;
  write_log(steps);
  const std::string whole = slurp(path_);
  std::uint64_t last_steps = 0, truncated = 0;
  for (std::size_t size = 0; size < whole.size(); size += 1 + size / 64) {
    spill(path_, whole.substr(0, size));
    const auto report = replay(path_);
    if (!report.ok()) {
      ASSERT_EQ(report.status().code(), StatusCode::kDataLoss);
      ASSERT_EQ(last_steps, 0u) << "only a head that is cut is refused";
      continue;
    }
    ASSERT_GE(report->steps, last_steps);
    last_steps = report->steps;
    truncated += report->truncated;
  }
  EXPECT_GT(last_steps, steps / 2);
  EXPECT_GT(truncated, 0u);
  spill(path_, whole.substr(0, whole.size() - 1));
  EXPECT_EQ(replay(path_)->steps, steps) << "the last event is there, its plan is not";
  EXPECT_EQ(replay(path_)->compared, steps - 1);
}

TEST_F(EventLog, RefusesDamage) {
  write_log(20);
  const std::string whole = slurp(path_);
  Random random(1);
  for (std::size_t at = 0; at < whole.size(); at += 1 + random.below(1 + at / 32)) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 + random.below(255)));
    spill(path_, damaged);
    const auto report = replay(path_);
    ASSERT_FALSE(report.ok()) << "byte " << at;
    ASSERT_EQ(report.status().code(), StatusCode::kDataLoss) << report.status().to_string();
  }
}

TEST_F(EventLog, RefusesEventsThatCannotHaveHappened) {
  CoreConfig config = small_config();
  const Arrival arrival{RequestId(1), "g", {TokenId(1)}, 5, 0, {}, kNever};
  const auto found = [](std::uint32_t group, bool hole, std::vector<std::uint32_t> slots) {
    Recovered event;
    event.last = true;
    for (const std::uint32_t slot : slots)
      event.entries.push_back({.entry = {}, .group = group, .hole = hole, .slot = SlotId(slot)});
    return event;
  };
  // Each story's last event is impossible; the plans before it are right.
  const std::vector<std::pair<std::vector<Event>, std::string>> stories = {
      {{arrival, arrival}, "step 2: a request arrives that is there already"},
      {{PassDone{OperationId(1), {}}}, "step 1: a pass ends that is not the first in flight"},
      {{arrival, PassDone{OperationId(2), {SpanOutcome{true, TokenId(1)}}}},
       "step 2: a pass ends that is not the first in flight"},
      {{arrival, PassDone{OperationId(1), {}}}, "step 2: the pass has 1 spans, 0 end"},
      {{arrival, PassDone{OperationId(1), {SpanOutcome{true, std::nullopt}}}},
       "step 2: span 0 lacks the sample that was asked for"},
      {{MovesEnded{{MoveOutcome{OperationId(1)}}}}, "step 1: a move ends that is not in flight"},
      {{found(0, false, {1}), found(0, false, {})}, "step 2: the disk's entries go on behind their end"},
      {{found(1, false, {1})}, "step 1: an entry of group 1 of 1"},
      {{found(0, false, {2})}, "step 1: an entry in slot 2 of 2"},
      {{found(0, true, {1})}, "step 1: an entry in slot 1 of 1"},
      {{found(0, false, {0, 1, 0})}, "step 1: two entries in slot 0"},
  };
  for (const auto& [story, message] : stories) {
    {
      EventLogWriter writer = EventLogWriter::create(path_, config, LoggedSecret::kKept).value();
      Core core = Core::make(config).value();
      for (std::size_t i = 0; i < story.size(); ++i) {
        ASSERT_TRUE(writer.append_event(0, story[i]).ok());
        if (i + 1 == story.size()) break;
        ASSERT_TRUE(writer.append_plan(core.step(0, story[i])).ok());
      }
    }
    const Status status = replay(path_).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(status.message(), message);
  }
}

TEST_F(EventLog, RefusesTimesThatGoBack) {
  for (const auto& [times, message] : std::vector<std::pair<std::vector<Nanos>, std::string>>{
           {{-1}, "step 1: expected a time of at least 0 ns, that of the step before, found -1 ns"},
           {{7, 7, 6}, "step 3: expected a time of at least 7 ns, that of the step before, found 6 ns"}}) {
    {
      EventLogWriter writer = EventLogWriter::create(path_, small_config(), LoggedSecret::kKept).value();
      Core core = Core::make(small_config()).value();
      for (const Nanos now : times) {
        ASSERT_TRUE(writer.append_event(now, Tick{}).ok());
        ASSERT_TRUE(writer.append_plan(core.step(std::max<Nanos>(now, 7), Tick{})).ok());
      }
    }
    const Status status = replay(path_).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(status.message(), message);
  }
}

TEST_F(EventLog, NamesAMissingOrForeignFile) {
  EXPECT_EQ(replay(path_ + ".none").status().code(), StatusCode::kNotFound);
  spill(path_, "GGUF and so on, a file of another kind");
  EXPECT_EQ(replay(path_).status().field(), "magic");
  EXPECT_EQ(EventLogWriter::create(path_ + "/x.log", {}, LoggedSecret::kLeftOut).status().code(),
            StatusCode::kUnavailable);
}

TEST(EventLogCodec, EveryEventSurvivesAndNoDamagedOneCrashes) {
  Arrival cut{RequestId(6), "group", {TokenId(1), TokenId(2)}, 9, 0, {}, kNever};
  cut.dropped = {{32, 96}, {96, 0xffffffff}};
  cut.follows = true;
  const std::vector<Event> events = {
      cut,
      Arrival{RequestId(7), "group", {TokenId(1), TokenId(0xffffffff)}, 9, 2, {TokenId(3)}, 1234567890123},
      Cancel{RequestId(8)},
      PassDone{
          OperationId(9), {{true, TokenId(4)}, {false, std::nullopt}, {true, std::nullopt}}, {720, 12345}},
      Tick{},
      Drain{55}};
  Random random(3);
  for (const Event& event : events) {
    std::string bytes;
    encode_event(event, bytes);
    const auto decoded = decode_event(bytes);
    ASSERT_TRUE(decoded.ok());
    std::string again;
    encode_event(*decoded, again);
    EXPECT_EQ(bytes, again);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode_event(bytes.substr(0, size)).ok());
    }
    EXPECT_FALSE(decode_event(bytes + "x").ok());
    for (int i = 0; i < 2000; ++i) {
      std::string damaged = bytes;
      damaged[random.below(damaged.size())] = static_cast<char>(random.below(256));
      if (const auto other = decode_event(damaged); other.ok()) {
        again.clear();
        encode_event(*other, again);
        EXPECT_EQ(again, damaged) << "one encoding an event";
      }
    }
  }
}

}  // namespace
}  // namespace loci
