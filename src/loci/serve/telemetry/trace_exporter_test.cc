// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/telemetry/trace_exporter.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/base/mutex.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

using Result = PostAnswer::Result;

// A collector that answers as the test decides, and remembers the names of the spans that it took.
class Collector {
 public:
  using Answer = std::function<PostAnswer()>;

  // Keeps it for as long as the exporter's thread lives.
  static PostSpans post_to(std::shared_ptr<Collector> collector) {
    return [collector = std::move(collector)](const std::string& body, Nanos timeout) {
      collector->timeout_ = timeout;
      PostAnswer answer = collector->answer();
      ++collector->posts_;
      if (answer.result == Result::kTaken) collector->take(body);
      return answer;
    };
  }
  void answer_with(Answer answer) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    made_ = std::move(answer);
  }
  // That were answered.
  int posts() const { return posts_; }
  Nanos timeout() const { return timeout_; }
  std::vector<std::string> names() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return names_;
  }
  std::size_t largest() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return largest_;
  }

 private:
  PostAnswer answer() EXCLUDES(mutex_) {
    Answer made;
    {
      const MutexLock lock(mutex_);
      made = made_;
    }
    return made();
  }
  void take(const std::string& body) EXCLUDES(mutex_) {
    const Json json = Json::parse(body);
    const Json& spans = json["resourceSpans"][0]["scopeSpans"][0]["spans"];
    const MutexLock lock(mutex_);
    for (const Json& span : spans) names_.push_back(span["name"]);
    largest_ = std::max(largest_, spans.size());
  }

  std::atomic<int> posts_ = 0;
  std::atomic<Nanos> timeout_ = 0;
  Mutex mutex_;
  Answer made_ GUARDED_BY(mutex_) = [] {
    return PostAnswer{.result = Result::kTaken, .why = {}, .body = {}};
  };
  std::vector<std::string> names_ GUARDED_BY(mutex_);
  std::size_t largest_ GUARDED_BY(mutex_) = 0;
};

PostAnswer failed(Result result, Nanos retry_after = 0) {
  return {.result = result, .why = "no", .body = {}, .retry_after = retry_after};
}

// Whoever is about to read it is paused for as long as the test says, as on a busy machine.
class PausingClock final : public Clock {
 public:
  Nanos now() const override {
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_));
    return system_.now();
  }
  void pause(Nanos time) { pause_ = time; }

 private:
  SystemClock system_;
  std::atomic<Nanos> pause_ = 0;
};

class TraceExporterTest : public testing::Test {
 protected:
  TraceExporterTest() { log_->set_pattern("%l %v"); }
  void start(TraceExporterOptions options) {
    exporter_ = std::make_unique<TraceExporter>(options, SpanResource(), clock_,
                                                Collector::post_to(collector_), log_);
  }
  void add(int from, int to) {
    for (int i = from; i < to; ++i) exporter_->add({.parent = {}, .name = std::to_string(i)});
  }
  bool has_counts(std::uint64_t sent, std::uint64_t dropped) {
    return eventually([&] {
      const TraceCounts counts = exporter_->counts();
      return counts.sent == sent && counts.dropped == dropped;
    });
  }
  // Lines of the log; the exporter has stopped.
  std::size_t lines(const std::string& with) {
    std::istringstream text(said_.str());
    std::size_t count = 0;
    for (std::string line; std::getline(text, line);) count += line.find(with) != std::string::npos ? 1 : 0;
    return count;
  }

  // Small waits: a test that waits for them is over soon.
  static constexpr TraceExporterOptions kQuick{
      .batch_wait = 5 * kNanosPerMilli, .first_pause = 5 * kNanosPerMilli, .pause_max = 20 * kNanosPerMilli};
  // Nothing is sent before a stop.
  static constexpr TraceExporterOptions kLater{.batch_wait = 3600 * kNanosPerSecond};
  SystemClock clock_;
  std::ostringstream said_;
  std::shared_ptr<spdlog::logger> log_ =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(said_));
  std::shared_ptr<Collector> collector_ = std::make_shared<Collector>();
  std::unique_ptr<TraceExporter> exporter_;
};

TEST_F(TraceExporterTest, SendsWhatItWasGivenInOrder) {
  start(kQuick);
  add(0, 3);
  EXPECT_TRUE(has_counts(3, 0));
  EXPECT_EQ(collector_->names(), (std::vector<std::string>{"0", "1", "2"}));
  add(3, 4);
  EXPECT_TRUE(has_counts(4, 0));
  exporter_->stop(60 * kNanosPerSecond);
  EXPECT_EQ(said_.str(), "");
}

TEST_F(TraceExporterTest, AFullBatchGoesAtOnceAndNoneIsLarger) {
  start({.batch_max = 10, .batch_wait = 3600 * kNanosPerSecond});
  add(0, 25);
  EXPECT_TRUE(has_counts(20, 0));
  EXPECT_EQ(collector_->largest(), 10u);
  exporter_->stop(kNanosPerSecond);
  EXPECT_TRUE(has_counts(25, 0));
}

TEST_F(TraceExporterTest, KeepsTheNewestWithinItsBoundWhileTheCollectorIsAway) {
  collector_->answer_with([] { return failed(Result::kTryAgain); });
  start({.buffer_max = 20,
         .batch_max = 10,
         .batch_wait = kNanosPerMilli,
         .first_pause = kNanosPerMilli,
         .pause_max = 5 * kNanosPerMilli});
  add(0, 100);
  EXPECT_TRUE(eventually([&] { return collector_->posts() >= 3; }));
  EXPECT_TRUE(has_counts(0, 80));
  collector_->answer_with([] { return PostAnswer{.result = Result::kTaken, .why = {}, .body = {}}; });
  EXPECT_TRUE(has_counts(20, 80));
  std::vector<int> names;
  for (const std::string& name : collector_->names()) names.push_back(std::stoi(name));
  ASSERT_EQ(names.size(), 20u);
  // A batch that was on its way stays, whichever it was: ten at most. All else is the newest.
  EXPECT_TRUE(std::ranges::is_sorted(names));
  for (int i = 10; i < 20; ++i) EXPECT_EQ(names[static_cast<std::size_t>(i)], 80 + i);
  exporter_->stop(60 * kNanosPerSecond);  // its last line is in the log, however late its thread is
  // One warning when it begins, one line when it ends.
  EXPECT_EQ(lines("warning the collector of traces (option traces) does not take spans: no; "), 1u)
      << said_.str();
  EXPECT_EQ(lines("info the collector of traces takes spans again"), 1u) << said_.str();
  EXPECT_EQ(lines(""), 2u) << said_.str();
}

TEST_F(TraceExporterTest, DropsWhatIsRefusedForGood) {
  collector_->answer_with([] { return failed(Result::kRefused); });
  start(kQuick);
  add(0, 3);
  EXPECT_TRUE(has_counts(0, 3));
  collector_->answer_with([] {
    return PostAnswer{
        .result = Result::kTaken, .why = {}, .body = R"({"partialSuccess":{"rejectedSpans":"1"}})"};
  });
  add(3, 6);
  EXPECT_TRUE(has_counts(2, 4));
}

TEST_F(TraceExporterTest, WaitsAsLongAsTheCollectorSays) {
  collector_->answer_with([] { return failed(Result::kTryAgain, 3600 * kNanosPerSecond); });
  start(kQuick);
  add(0, 1);
  EXPECT_TRUE(eventually([&] { return collector_->posts() == 1; }));
  collector_->answer_with([] { return PostAnswer{.result = Result::kTaken, .why = {}, .body = {}}; });
  add(1, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // far longer than its own pause
  EXPECT_EQ(collector_->posts(), 1);
  // Who stops does not wait for that.
  exporter_->stop(60 * kNanosPerSecond);
  EXPECT_TRUE(has_counts(2, 0));
}

TEST_F(TraceExporterTest, APauseGrowsAndEndsWithASuccess) {
  collector_->answer_with([] { return failed(Result::kTryAgain); });
  start({.batch_wait = 0, .first_pause = 20 * kNanosPerMilli, .pause_max = 40 * kNanosPerMilli});
  const Nanos begin = clock_.now();
  add(0, 1);
  // (Whoever is slow to look may see more.)
  EXPECT_TRUE(eventually([&] { return collector_->posts() >= 4; }));
  EXPECT_GE(clock_.now() - begin, 100 * kNanosPerMilli);  // 20, 40, 40
}

TEST_F(TraceExporterTest, AStopSendsWhatIsThere) {
  start(kLater);
  add(0, 3);
  EXPECT_EQ(collector_->posts(), 0);
  exporter_->stop(60 * kNanosPerSecond);
  EXPECT_EQ(exporter_->counts().sent, 3u);
  EXPECT_LE(collector_->timeout(), 60 * kNanosPerSecond);
  add(3, 5);
  EXPECT_EQ(exporter_->counts().dropped, 2u);
}

TEST_F(TraceExporterTest, AStopDoesNotTryACollectorThatIsAwayAgain) {
  collector_->answer_with([] { return failed(Result::kTryAgain); });
  start(kLater);
  add(0, 500);
  exporter_->stop(60 * kNanosPerSecond);
  EXPECT_EQ(collector_->posts(), 1);
  EXPECT_EQ(exporter_->counts().dropped, 500u);
}

// Else the parts of a request would not fit together.
TEST_F(TraceExporterTest, APauseBetweenTwoClocksMovesNoSpan) {
  PausingClock clock;
  std::vector<std::string> begins;  // the exporter's thread's, until that has ended
  const PostSpans post = [&begins](const std::string& body, Nanos) {
    const Json json = Json::parse(body);
    for (const Json& span : json["resourceSpans"][0]["scopeSpans"][0]["spans"])
      begins.push_back(span["startTimeUnixNano"]);
    return PostAnswer{.result = Result::kTaken, .why = {}, .body = {}};
  };
  TraceExporter exporter(kLater, SpanResource(), clock, post, log_);
  for (const Nanos pause : {Nanos{0}, 20 * kNanosPerMilli, Nanos{0}}) {
    clock.pause(pause);
    exporter.add({.parent = {}, .name = "part", .begin = 5});
  }
  exporter.stop(60 * kNanosPerSecond);
  ASSERT_EQ(begins.size(), 3u);
  EXPECT_EQ(begins[1], begins[0]);
  EXPECT_EQ(begins[2], begins[0]);
}

// Whoever adds spans or stops does not wait for a collector that does not answer.
TEST_F(TraceExporterTest, NobodyWaitsForASlowCollector) {
  struct Gate {
    Mutex mutex;
    Condition opened;
    bool is_open GUARDED_BY(mutex) = false;
  };
  const auto gate = std::make_shared<Gate>();
  const auto has_begun = std::make_shared<std::atomic<bool>>(false);
  const auto has_ended = std::make_shared<std::atomic<bool>>(false);
  collector_->answer_with([gate, has_begun, has_ended] {
    *has_begun = true;
    {
      MutexLock lock(gate->mutex);
      gate->opened.wait(lock, [&gate]() REQUIRES(gate->mutex) { return gate->is_open; });
    }
    *has_ended = true;
    return PostAnswer{.result = Result::kTaken, .why = {}, .body = {}};
  });
  start(kQuick);
  add(0, 10);
  EXPECT_TRUE(eventually([&] { return has_begun->load(); }));
  add(10, 10'000);
  EXPECT_GT(exporter_->counts().dropped, 0u);
  exporter_->stop(20 * kNanosPerMilli);
  const TraceCounts counts = exporter_->counts();
  EXPECT_EQ(counts.sent, 0u);
  EXPECT_EQ(counts.dropped, 10'000u);
  {
    const MutexLock lock(gate->mutex);
    gate->is_open = true;
  }
  gate->opened.notify_all();
  EXPECT_TRUE(eventually([&] { return has_ended->load(); }));
}

}  // namespace
}  // namespace loci
