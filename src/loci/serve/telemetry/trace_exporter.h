// SPDX-License-Identifier: Apache-2.0
// Sends spans to a collector, on a thread of its own for which nothing ever waits.
//
// What is not sent yet lies in a buffer with a bound; when that is full the oldest spans go. Spans are sent
// in batches, as soon as one is full or a second after its first span. After a failure the next attempt
// waits: as long as the collector said (Retry-After), or a second, two, four, up to half a minute. What it
// refused for good (400, say) is dropped, as the specification of OTLP wants it; what may be sent again is
// kept within the bound. The log has one warning when failures begin, and one line when they end.
#pragma once

#include <spdlog/logger.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "loci/base/clock.h"
#include "loci/serve/telemetry/trace_span.h"

namespace loci {

struct PostAnswer {
  enum class Result : std::uint8_t {
    kTaken,
    kTryAgain,  // no connection, no answer in time, or the collector said so
    kRefused,   // for good
  };
  Result result = Result::kTryAgain;
  std::string why;        // the reason for the log, if the collector did not take the spans
  std::string body;       // of the collector's answer, if it took them
  Nanos retry_after = 0;  // as the collector said; 0: it did not
};
// Sends a body of JSON and waits for the answer, no longer than `timeout`. Called by the exporter's thread.
using PostSpans = std::function<PostAnswer(std::string body, Nanos timeout)>;

struct TraceExporterOptions {
  std::size_t buffer_max = 4'096;  // spans that wait or are being sent
  std::size_t batch_max = 512;
  Nanos batch_wait = kNanosPerSecond;  // of a batch that is not full
  Nanos post_timeout = 10 * kNanosPerSecond;
  Nanos first_pause = kNanosPerSecond;  // after a failure; each further one doubles it
  Nanos pause_max = 30 * kNanosPerSecond;
  Nanos retry_after_max = 3600 * kNanosPerSecond;  // whatever a collector says
};

// Of all spans that were given to it and are not in the buffer any more.
struct TraceCounts {
  std::uint64_t sent = 0;     // and taken
  std::uint64_t dropped = 0;  // the buffer was full, or the collector did not take them
};

// Thread-safe, but for stop(), which one thread calls.
class TraceExporter {
 public:
  TraceExporter(const TraceExporterOptions& options, SpanResource resource, const Clock& clock,
                PostSpans post, std::shared_ptr<spdlog::logger> log);
  // As stop(0).
  ~TraceExporter();
  TraceExporter(const TraceExporter&) = delete;
  TraceExporter& operator=(const TraceExporter&) = delete;

  // Never waits. After stop() the span is dropped.
  void add(TraceSpan span);
  TraceCounts counts() const;
  // Sends what is there, for no longer than `patience`, and ends the thread. One that waits for a name server
  // or a collector longer than that is left behind: it touches nothing of the process's any more.
  void stop(Nanos patience);

 private:
  class Shared;
  const Clock& clock_;  // of the spans
  std::atomic<std::int64_t> unix_offset_;
  std::shared_ptr<Shared> shared_;  // with the thread, which may outlive the exporter
  std::thread thread_;
};

}  // namespace loci
