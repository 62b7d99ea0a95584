// SPDX-License-Identifier: Apache-2.0
// The simulated device: streams are queues of operations, and nothing runs before somebody waits. Then
// operations run one by one, from streams drawn at random among those that may go on, until what is waited
// for is done. So an event that nobody waits for shows as bytes that are not there yet.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/mutex.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/compute/cuda/simulated/faults.h"

namespace loci::cuda::simulated {

struct EventState {
  std::uint64_t recorded = 0;  // queued, and captured ones
  std::uint64_t done = 0;
  std::chrono::steady_clock::time_point at;
};

struct Operation {
  enum class Kind : std::uint8_t { kRun, kKernel, kRecord, kWait };
  Kind kind = Kind::kRun;
  std::function<void()> run{};
  std::function<void(const std::function<void()>& previous)> kernel{};  // of kKernel
  std::shared_ptr<EventState> event;
  std::uint64_t version = 0;
};

struct GraphState {
  bool refused = false;               // a kernel of the capture was refused
  std::vector<Operation> operations;  // in the order in which they were captured
};

struct StreamState {
  std::deque<Operation> queue;
  std::shared_ptr<GraphState> capture;
  bool captures_itself = false;  // begin_capture() was called here
};

struct Piece {
  std::uint64_t bytes = 0, mapped = 0;
  MemoryKind kind = MemoryKind::kDevice;
};

// The options of the environment, for programs in which no test sets them.
Options options_of_environment();

// The one device. Operations run with its mutex held; streams, events and graphs are under it too.
struct World {
  Mutex mutex{LockOrder::kDriver};
  Options options GUARDED_BY(mutex) = options_of_environment();
  Counters counters GUARDED_BY(mutex);
  std::uint64_t random GUARDED_BY(mutex) = options.seed * 0x9e3779b97f4a7c15u + 1;
  std::vector<StreamState*> streams GUARDED_BY(mutex);
  std::map<std::byte*, Piece> pieces GUARDED_BY(mutex);
  std::uint64_t used[2] GUARDED_BY(mutex) = {0, 0};  // by kind
  std::map<EventState*, std::shared_ptr<GraphState>> captured_events GUARDED_BY(mutex);

  std::uint64_t draw() REQUIRES(mutex);
  // Runs one operation of a stream drawn at random; false: none may go on.
  bool step() REQUIRES(mutex);
  template <class Done>
  void run_until(const Done& done) REQUIRES(mutex) {
    while (!done()) LOCI_CHECK(step(), "streams wait for an event that nothing will record");
  }
  void run_all() REQUIRES(mutex);
  void check_inside(const void* pointer, std::uint64_t bytes) REQUIRES(mutex);
};

World& world();

// What the handles of events and streams point to.
std::shared_ptr<EventState>& event_state(void* handle);
StreamState& stream_state(void* handle);

// True: the device is not lost and counts one more operation. The world's mutex must be held.
bool counts(const Device& device);
// Queues an operation of `stream`, or captures it.
void queue(StreamState& stream, Operation operation);
void queue(const Device& device, StreamState& stream, std::function<void()> run);

}  // namespace loci::cuda::simulated
