// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/telemetry/trace_exporter.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <exception>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/mutex.h"

namespace loci {
namespace {

// The thread and stop() count in the system's time whatever clock the spans are of: they wait for others.
Nanos time_now() { return SystemClock().now(); }

// What is added to the clock's times to get nanoseconds since 1970.
struct UnixOffset {
  std::int64_t nanos = 0;
  Nanos error =
      0;  // at most: the two clocks are read one after the other, and a thread may be paused between
};
UnixOffset unix_offset_of(const Clock& clock) {
  const Nanos before = clock.now();
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  const Nanos after = clock.now();
  return {.nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(since_1970).count() - before,
          .error = after - before};
}
// The best of a few readings.
std::int64_t first_unix_offset_of(const Clock& clock) {
  UnixOffset best = unix_offset_of(clock);
  for (int tries = 0; tries < 10 && best.error > kNanosPerMilli / 10; ++tries) {
    const UnixOffset other = unix_offset_of(clock);
    if (other.error < best.error) best = other;
  }
  return best.nanos;
}

}  // namespace

class TraceExporter::Shared {
 public:
  Shared(const TraceExporterOptions& options, SpanResource resource, PostSpans post,
         std::shared_ptr<spdlog::logger> log)
      : options_(options), resource_(std::move(resource)), post_(std::move(post)), log_(std::move(log)) {}

  void add(TraceSpan span) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (stop_at_) {
      ++counts_.dropped;
      return;
    }
    if (waiting_.empty()) first_at_ = time_now();
    waiting_.push_back(std::move(span));
    keep_newest();
    if (waiting_.size() == 1 || waiting_.size() == options_.batch_max) changed_.notify_all();
  }

  TraceCounts counts() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return counts_;
  }

  // True: the thread has ended, or is about to.
  bool stop(Nanos patience) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (is_left_behind_) return false;
    if (!stop_at_) stop_at_ = time_now() + patience;
    changed_.notify_all();
    // A call ends a little after its timeout.
    constexpr Nanos kGrace = 100 * kNanosPerMilli;
    const std::chrono::nanoseconds wait(patience + kGrace);
    if (changed_.wait_for(lock, wait, [this]() REQUIRES(mutex_) { return has_ended_; })) return true;
    counts_.dropped += in_flight_ + waiting_.size();
    waiting_.clear();
    is_left_behind_ = true;
    return false;
  }

  void run() EXCLUDES(mutex_) {
    pthread_setname_np(pthread_self(), "loci-traces");
    while (send_next()) {
    }
    const MutexLock lock(mutex_);
    counts_.dropped += waiting_.size();
    waiting_.clear();
    has_ended_ = true;
    changed_.notify_all();
  }

 private:
  void keep_newest() REQUIRES(mutex_) {
    while (!waiting_.empty() && waiting_.size() + in_flight_ > options_.buffer_max) {
      waiting_.pop_front();
      ++counts_.dropped;
    }
  }

  // When the next batch is to be sent; kNever: nothing waits.
  Nanos due() const REQUIRES(mutex_) {
    if (waiting_.empty()) return kNever;
    if (stop_at_) return 0;
    const Nanos filled = waiting_.size() >= options_.batch_max ? 0 : first_at_ + options_.batch_wait;
    return std::max(filled, paused_until_);
  }

  // Waits for the next batch. Empty: the thread is to end.
  std::vector<TraceSpan> take(Nanos& timeout) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    for (;;) {
      const Nanos now = time_now(), at = due();
      if (is_left_behind_ || (stop_at_ && (waiting_.empty() || now >= *stop_at_))) return {};
      if (at <= now) break;
      constexpr Nanos kLookEvery = 60 * kNanosPerSecond;
      changed_.wait_until(
          lock, std::chrono::steady_clock::now() + std::chrono::nanoseconds(std::min(at - now, kLookEvery)));
    }
    timeout = options_.post_timeout;
    if (stop_at_) timeout = std::min(timeout, std::max<Nanos>(*stop_at_ - time_now(), kNanosPerMilli));
    const std::size_t count = std::min(waiting_.size(), options_.batch_max);
    const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(count);
    std::vector<TraceSpan> batch(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
    waiting_.erase(waiting_.begin(), end);
    first_at_ = time_now();
    in_flight_ = count;
    return batch;
  }

  // False: the thread is to end.
  bool send_next() EXCLUDES(mutex_) {
    Nanos timeout = 0;
    std::vector<TraceSpan> batch = take(timeout);
    if (batch.empty()) return false;
    PostAnswer answer;
    try {
      answer = post_(spans_json(batch, resource_), timeout);
    } catch (const std::exception& error) {
      answer = {.result = PostAnswer::Result::kRefused, .why = error.what(), .body = {}};
    }
    const std::string news = note(std::move(batch), answer);
    if (news.empty()) return true;
    if (failures_ > 0)
      log_->warn("{}", news);
    else
      log_->info("{}", news);
    return true;
  }

  // Takes the answer to a batch; returns what the log is to say of it.
  std::string note(std::vector<TraceSpan> batch, const PostAnswer& answer) EXCLUDES(mutex_) {
    const bool is_taken = answer.result == PostAnswer::Result::kTaken;
    const std::uint64_t rejected =
        is_taken ? std::min<std::uint64_t>(rejected_spans(answer.body), batch.size()) : batch.size();
    const MutexLock lock(mutex_);
    in_flight_ = 0;
    if (is_left_behind_) return {};  // it was counted, and the log may have ended
    if (is_taken) {
      counts_.sent += batch.size() - rejected;
      counts_.dropped += rejected;
      const int before = std::exchange(failures_, 0);
      return before > 0 ? "the collector of traces takes spans again" : std::string();
    }
    if (answer.result == PostAnswer::Result::kTryAgain && !stop_at_) {
      waiting_.insert(waiting_.begin(), std::make_move_iterator(batch.begin()),
                      std::make_move_iterator(batch.end()));
      keep_newest();
    } else {
      counts_.dropped += batch.size();
    }
    const Nanos doubled = options_.first_pause << std::min(failures_, 20);
    const Nanos pause = answer.retry_after > 0 ? std::min(answer.retry_after, options_.retry_after_max)
                                               : std::min(doubled, options_.pause_max);
    paused_until_ = time_now() + pause;
    // A collector that is away while the server stops is tried no more.
    if (stop_at_) stop_at_ = 0;
    if (failures_++ > 0) return {};
    return "the collector of traces (option traces) does not take spans: " + answer.why +
           "; the newest are kept and sent when it does";
  }

  const TraceExporterOptions options_;
  const SpanResource resource_;
  const PostSpans post_;
  const std::shared_ptr<spdlog::logger> log_;
  int failures_ = 0;  // in a row; the thread's
  mutable Mutex mutex_;
  Condition changed_;
  std::deque<TraceSpan> waiting_ GUARDED_BY(mutex_);
  Nanos first_at_ GUARDED_BY(mutex_) = 0;  // when the first of them came, or the batch before was taken
  std::size_t in_flight_ GUARDED_BY(mutex_) = 0;  // spans of the batch that is being sent
  Nanos paused_until_ GUARDED_BY(mutex_) = 0;
  std::optional<Nanos> stop_at_ GUARDED_BY(mutex_);  // when the thread ends, whatever waits
  bool is_left_behind_ GUARDED_BY(mutex_) = false;   // nobody waits for the thread any more
  bool has_ended_ GUARDED_BY(mutex_) = false;
  TraceCounts counts_ GUARDED_BY(mutex_);
};

TraceExporter::TraceExporter(const TraceExporterOptions& options, SpanResource resource, const Clock& clock,
                             PostSpans post, std::shared_ptr<spdlog::logger> log)
    : clock_(clock),
      unix_offset_(first_unix_offset_of(clock)),
      shared_(std::make_shared<Shared>(options, std::move(resource), std::move(post), std::move(log))),
      thread_([shared = shared_] { shared->run(); }) {}

TraceExporter::~TraceExporter() { stop(0); }
void TraceExporter::add(TraceSpan span) {
  // Since the start the time of day may have been set, or the machine have slept. (To spans of one request
  // the same is added, so that they fit together.)
  std::int64_t offset = unix_offset_.load();
  const UnixOffset now = unix_offset_of(clock_);
  if (std::abs(now.nanos - offset) > kNanosPerMilli + now.error) unix_offset_ = offset = now.nanos;
  span.begin += offset;
  span.end += offset;
  shared_->add(std::move(span));
}
TraceCounts TraceExporter::counts() const { return shared_->counts(); }

void TraceExporter::stop(Nanos patience) {
  if (!thread_.joinable()) return;
  if (shared_->stop(patience))
    thread_.join();
  else
    thread_.detach();
}

}  // namespace loci
