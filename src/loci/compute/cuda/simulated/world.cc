// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/simulated/world.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "loci/base/check.h"

namespace loci::cuda::simulated {
namespace {

bool may_go_on(const StreamState& stream) {
  if (stream.queue.empty()) return false;
  const Operation& next = stream.queue.front();
  return next.kind != Operation::Kind::kWait || next.event->done >= next.version;
}

}  // namespace

Options options_of_environment() {
  Options options;
  const auto read = [](const char* name, std::uint64_t& value) {
    if (const char* text = std::getenv(name)) value = std::strtoull(text, nullptr, 10);
  };
  read("LOCI_SIMULATED_LOST_AFTER", options.lost_after);
  read("LOCI_SIMULATED_MEMORY", options.memory_bytes);
  read("LOCI_SIMULATED_SEED", options.seed);
  return options;
}

World& world() {
  static World instance;
  return instance;
}

std::uint64_t World::draw() {
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  return random;
}

bool World::step() {
  std::vector<StreamState*> ready;
  for (StreamState* stream : streams) {
    if (may_go_on(*stream)) ready.push_back(stream);
  }
  if (ready.empty()) return false;
  StreamState& stream = *ready[draw() % ready.size()];
  const Operation next = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (next.kind == Operation::Kind::kRun) next.run();
  if (next.kind == Operation::Kind::kKernel) {
    // Of two kernels in a row the second may begin before the first has.
    if (!stream.queue.empty() && stream.queue.front().kind == Operation::Kind::kKernel && draw() % 2 == 0) {
      const Operation second = std::move(stream.queue.front());
      stream.queue.pop_front();
      second.kernel([&] { next.kernel(nullptr); });
    } else {
      next.kernel(nullptr);
    }
  }
  if (next.kind == Operation::Kind::kRecord) {
    next.event->done = std::max(next.event->done, next.version);
    next.event->at = std::chrono::steady_clock::now();
  }
  return true;
}

void World::run_all() {
  for (const StreamState* stream : streams) run_until([&] { return stream->queue.empty(); });
}

void World::check_inside(const void* pointer, std::uint64_t bytes) {
  auto* at = static_cast<std::byte*>(const_cast<void*>(pointer));
  auto found = pieces.upper_bound(at);
  LOCI_CHECK(found != pieces.begin(), "a copy's end is neither device memory nor pinned");
  --found;
  LOCI_CHECK(at + bytes <= found->first + found->second.bytes, "a copy leaves its piece of memory");
}

void set_options(const Options& options) {
  World& w = world();
  const MutexLock lock(w.mutex);
  w.options = options;
  w.counters = {};
  w.random = options.seed * 0x9e3779b97f4a7c15u + 1;
}

Counters counters() {
  World& w = world();
  const MutexLock lock(w.mutex);
  return w.counters;
}

std::shared_ptr<EventState>& event_state(void* handle) {
  return *static_cast<std::shared_ptr<EventState>*>(handle);
}

StreamState& stream_state(void* handle) { return *static_cast<StreamState*>(handle); }

bool counts(const Device& device) {
  World& here = world();
  here.mutex.assert_held();
  if (device.lost()) return false;
  if (here.counters.operations >= here.options.lost_after) {
    device.note(Status(StatusCode::kUnavailable, "the device is lost: a simulated fault"));
    return false;
  }
  ++here.counters.operations;
  return true;
}

void queue(StreamState& stream, Operation operation) {
  World& w = world();
  const MutexLock lock(w.mutex);
  if (stream.capture != nullptr) {
    stream.capture->operations.push_back(std::move(operation));
  } else {
    stream.queue.push_back(std::move(operation));
  }
}

void queue(const Device& device, StreamState& stream, std::function<void()> run) {
  queue(stream, Operation{.run = [&device, run = std::move(run)] {
          if (counts(device)) run();
        }});
}

}  // namespace loci::cuda::simulated
