// SPDX-License-Identifier: Apache-2.0
// The simulated device: streams are queues of operations, and nothing runs before somebody waits. Then
// operations run one by one, from streams drawn at random among those that may go on, until what is waited
// for is done. So an event that nobody waits for shows as bytes that are not there yet.
//
// Memory lies against a page that nobody may touch, and the address sanitizer knows where exactly it begins
// and ends; copies must lie inside one piece of device or pinned memory.
#include "loci/compute/cuda/runtime.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>

#include "loci/base/check.h"
#include "loci/base/mutex.h"
#include "loci/compute/cuda/simulated/faults.h"
#include "loci/compute/cuda/simulated/grid.h"
#include "loci/compute/cuda/simulated/sanitizers.h"

namespace loci::cuda {
namespace simulated {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kAlignment = 256;

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
  bool refused = false;               // a kernel of the capture was
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

// What a program's environment says, where no test does.
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

  std::uint64_t draw() REQUIRES(mutex) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random;
  }

  static bool may_go_on(const StreamState& stream) {
    if (stream.queue.empty()) return false;
    const Operation& next = stream.queue.front();
    return next.kind != Operation::Kind::kWait || next.event->done >= next.version;
  }

  // Runs one operation of a stream drawn at random; false: none may go on.
  bool step() REQUIRES(mutex) {
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

  template <class Done>
  void run_until(const Done& done) REQUIRES(mutex) {
    while (!done()) LOCI_CHECK(step(), "streams wait for an event that nothing will record");
  }

  void run_all() REQUIRES(mutex) {
    for (const StreamState* stream : streams) run_until([&] { return stream->queue.empty(); });
  }

  void check_inside(const void* pointer, std::uint64_t bytes) REQUIRES(mutex) {
    auto* at = static_cast<std::byte*>(const_cast<void*>(pointer));
    auto found = pieces.upper_bound(at);
    LOCI_CHECK(found != pieces.begin(), "a copy's end is neither device memory nor pinned");
    --found;
    LOCI_CHECK(at + bytes <= found->first + found->second.bytes, "a copy leaves its piece of memory");
  }
};

World& world() {
  static World instance;
  return instance;
}

}  // namespace

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

namespace {

std::shared_ptr<EventState>& event_state(void* handle) {
  return *static_cast<std::shared_ptr<EventState>*>(handle);
}
StreamState& stream_state(void* handle) { return *static_cast<StreamState*>(handle); }

// Whether the device is there for one more operation.
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

// Queues an operation of `stream`, or captures it.
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

}  // namespace
}  // namespace simulated

using simulated::world;
using simulated::World;

std::uint32_t Device::count() { return 1; }

Result<std::unique_ptr<Device>> Device::open(std::uint32_t ordinal) {
  if (ordinal != 0) {
    return Status(StatusCode::kUnavailable, fmt::format("expected device cuda:0, found cuda:{}", ordinal));
  }
  World& w = world();
  const MutexLock lock(w.mutex);
  DeviceProperties properties{.ordinal = 0,
                              .name = "simulated device",
                              .capability = w.options.capability,
                              .multiprocessors = w.options.multiprocessors,
                              .memory_bytes = w.options.memory_bytes,
                              .l2_bytes = std::uint64_t{1} << 20,
                              .shared_bytes_max = 227u << 10,
                              .simulated = true};
  LOCI_RETURN_IF_ERROR(check_capability(properties, "80,89,90a"));
  return std::unique_ptr<Device>(new Device(std::move(properties)));
}

Device::~Device() { delete error_.load(); }

std::uint64_t Device::free_bytes() const {
  World& w = world();
  const MutexLock lock(w.mutex);
  return w.options.memory_bytes - std::min(w.options.memory_bytes, w.used[0]);
}

void Device::synchronize() const {
  World& w = world();
  const MutexLock lock(w.mutex);
  w.run_all();
}

Result<Memory> Memory::allocate(const Device& device, MemoryKind kind, std::uint64_t bytes,
                                const char* what) {
  World& w = world();
  const MutexLock lock(w.mutex);
  const int index = kind == MemoryKind::kDevice ? 0 : 1;
  const std::uint64_t limit = index == 0 ? w.options.memory_bytes : w.options.pinned_bytes;
  Memory memory;
  if (bytes == 0) return memory;
  if (device.lost()) return device.status();
  if (w.used[index] + bytes > limit) {
    return resource_exhausted(fmt::format("{} bytes of {} memory are not there: {} are free", bytes,
                                          index == 0 ? "device" : "pinned host", limit - w.used[index]),
                              what);
  }
  const std::uint64_t rounded =
      (bytes + simulated::kAlignment - 1) / simulated::kAlignment * simulated::kAlignment;
  const std::uint64_t mapped = (rounded + simulated::kPage - 1) / simulated::kPage * simulated::kPage;
  void* pages = mmap(nullptr, mapped + simulated::kPage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED)
    return resource_exhausted(fmt::format("{} bytes could not be mapped", bytes), what);
  mprotect(static_cast<std::byte*>(pages) + mapped, simulated::kPage, PROT_NONE);
  memory.device_ = &device;
  memory.kind_ = kind;
  memory.data_ = static_cast<std::byte*>(pages) + mapped - rounded;
  memory.bytes_ = bytes;
  // Nobody may rely on what it holds; large pieces stay untouched.
  if (bytes <= std::uint64_t{16} << 20) std::memset(memory.data_, 0xff, rounded);
  simulated::forbid(pages, mapped - rounded);
  simulated::forbid(memory.data_ + bytes, rounded - bytes);
  w.pieces[memory.data_] = {bytes, mapped, kind};
  ++w.counters.allocations;
  w.used[index] += bytes;
  return memory;
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  World& w = world();
  const MutexLock lock(w.mutex);
  // As cudaFree: what is queued is done first.
  w.run_all();
  const auto found = w.pieces.find(data_);
  w.used[kind_ == MemoryKind::kDevice ? 0 : 1] -= bytes_;
  const std::uint64_t rounded =
      (bytes_ + simulated::kAlignment - 1) / simulated::kAlignment * simulated::kAlignment;
  std::byte* pages = data_ + rounded - found->second.mapped;
  simulated::allow(pages, found->second.mapped);
  munmap(pages, found->second.mapped + simulated::kPage);
  w.pieces.erase(found);
}

Event::Event(const Device& device, Timing timing) : device_(&device), timing_(timing) {
  handle_ = new std::shared_ptr<simulated::EventState>(std::make_shared<simulated::EventState>());
}

Event::~Event() {
  if (handle_ == nullptr) return;
  World& w = world();
  const MutexLock lock(w.mutex);
  w.captured_events.erase(simulated::event_state(handle_).get());
  delete static_cast<std::shared_ptr<simulated::EventState>*>(handle_);
}

bool Event::done() const {
  World& w = world();
  const MutexLock lock(w.mutex);
  const simulated::EventState& state = *simulated::event_state(handle_);
  if (state.done < state.recorded) w.step();
  return state.done >= state.recorded;
}

void Event::synchronize() const {
  World& w = world();
  const MutexLock lock(w.mutex);
  const simulated::EventState& state = *simulated::event_state(handle_);
  const std::uint64_t version = state.recorded;
  w.run_until([&] { return state.done >= version; });
}

double Event::milliseconds_since(const Event& earlier) const {
  LOCI_CHECK(timing_ == Timing::kTimed && earlier.timing_ == Timing::kTimed, "only timed events tell time");
  World& w = world();
  const MutexLock lock(w.mutex);
  return std::chrono::duration<double, std::milli>(simulated::event_state(handle_)->at -
                                                   simulated::event_state(earlier.handle_)->at)
      .count();
}

Graph::~Graph() { delete static_cast<std::shared_ptr<simulated::GraphState>*>(handle_); }

Stream::Stream(const Device& device, Priority) : device_(&device) {
  auto state = std::make_unique<simulated::StreamState>();
  World& w = world();
  const MutexLock lock(w.mutex);
  w.streams.push_back(state.get());
  handle_ = state.release();
}

Stream::~Stream() {
  if (handle_ == nullptr) return;
  World& w = world();
  const MutexLock lock(w.mutex);
  simulated::StreamState* state = &simulated::stream_state(handle_);
  w.run_until([&] { return state->queue.empty(); });
  std::erase(w.streams, state);
  delete state;
}

void Stream::copy(void* to, const void* from, std::uint64_t bytes) {
  copy_rows(to, bytes, from, bytes, bytes, 1);
}

void Stream::copy_pieces(std::span<const CopyPiece> pieces) {
  LOCI_CHECK(simulated::stream_state(handle_).capture == nullptr, "pieces are not captured");
  for (const CopyPiece& piece : pieces) copy(piece.to, piece.from, piece.bytes);
}

void Stream::copy_rows(void* to, std::uint64_t to_pitch, const void* from, std::uint64_t from_pitch,
                       std::uint64_t row_bytes, std::uint64_t rows) {
  if (row_bytes == 0 || rows == 0) return;
  LOCI_CHECK(to_pitch >= row_bytes && from_pitch >= row_bytes, "rows do not overlap");
  {
    World& w = world();
    const MutexLock lock(w.mutex);
    w.check_inside(to, to_pitch * (rows - 1) + row_bytes);
    w.check_inside(from, from_pitch * (rows - 1) + row_bytes);
  }
  simulated::queue(*device_, simulated::stream_state(handle_), [=] {
    for (std::uint64_t i = 0; i < rows; ++i) {
      std::memcpy(static_cast<std::byte*>(to) + i * to_pitch,
                  static_cast<const std::byte*>(from) + i * from_pitch, row_bytes);
    }
    World& here = world();
    here.mutex.assert_held();
    here.counters.copied_bytes += row_bytes * rows;
  });
}

void Stream::fill(void* to, std::uint8_t value, std::uint64_t bytes) {
  if (bytes == 0) return;
  {
    World& w = world();
    const MutexLock lock(w.mutex);
    w.check_inside(to, bytes);
  }
  simulated::queue(*device_, simulated::stream_state(handle_), [=] { std::memset(to, value, bytes); });
}

void Stream::record(Event& event) {
  World& w = world();
  const MutexLock lock(w.mutex);
  simulated::StreamState& stream = simulated::stream_state(handle_);
  const std::shared_ptr<simulated::EventState>& state = simulated::event_state(event.handle_);
  if (stream.capture != nullptr) {
    w.captured_events[state.get()] = stream.capture;
    return;
  }
  w.captured_events.erase(state.get());
  stream.queue.push_back(
      {.kind = simulated::Operation::Kind::kRecord, .event = state, .version = ++state->recorded});
}

void Stream::wait(const Event& event) {
  World& w = world();
  const MutexLock lock(w.mutex);
  simulated::StreamState& stream = simulated::stream_state(handle_);
  const std::shared_ptr<simulated::EventState>& state = simulated::event_state(event.handle_);
  if (const auto captured = w.captured_events.find(state.get()); captured != w.captured_events.end()) {
    // The capture goes on in this stream; its order is that of the calls.
    LOCI_CHECK(stream.capture == nullptr || stream.capture == captured->second, "one capture at a time");
    stream.capture = captured->second;
    return;
  }
  LOCI_CHECK(stream.capture == nullptr, "a capture waits for no event outside of it");
  if (state->done >= state->recorded) return;
  stream.queue.push_back(
      {.kind = simulated::Operation::Kind::kWait, .event = state, .version = state->recorded});
}

void Stream::synchronize() {
  World& w = world();
  const MutexLock lock(w.mutex);
  simulated::StreamState& stream = simulated::stream_state(handle_);
  LOCI_CHECK(stream.capture == nullptr, "a captured stream is not waited for");
  w.run_until([&] { return stream.queue.empty(); });
}

bool Stream::begin_capture() {
  World& w = world();
  const MutexLock lock(w.mutex);
  if (device_->lost()) return false;
  if (w.options.capture_begins_fail) {
    note_failure(Status(StatusCode::kInternal, "cuda:0 refused the begin of a capture: a simulated fault"));
    return false;
  }
  simulated::StreamState& stream = simulated::stream_state(handle_);
  LOCI_CHECK(stream.capture == nullptr, "one capture at a time");
  stream.capture = std::make_shared<simulated::GraphState>();
  stream.captures_itself = true;
  return true;
}

Graph Stream::end_capture() {
  World& w = world();
  const MutexLock lock(w.mutex);
  simulated::StreamState& stream = simulated::stream_state(handle_);
  LOCI_CHECK(stream.capture != nullptr && stream.captures_itself, "a capture ends where it began");
  const std::shared_ptr<simulated::GraphState> state = stream.capture;
  for (simulated::StreamState* other : w.streams) {
    if (other->capture == state) other->capture = nullptr;
  }
  stream.captures_itself = false;
  std::erase_if(w.captured_events, [&](const auto& each) { return each.second == state; });
  Graph graph;
  if (w.options.captures_fail) {
    if (failure_.ok())
      failure_ = Status(StatusCode::kInternal, "cuda:0 refused a capture: a simulated fault");
    return graph;
  }
  graph.handle_ = new std::shared_ptr<simulated::GraphState>(state);
  return graph;
}

void Stream::launch(const Graph& graph) {
  LOCI_CHECK(graph.present(), "a graph that was captured");
  World& w = world();
  const MutexLock lock(w.mutex);
  simulated::StreamState& stream = simulated::stream_state(handle_);
  LOCI_CHECK(stream.capture == nullptr, "graphs are not captured");
  // Its operations are run in their order, before what follows the graph, and after what came before it.
  const auto& state = *static_cast<std::shared_ptr<simulated::GraphState>*>(graph.handle_);
  stream.queue.push_back({.run = [] {
    World& here = world();
    here.mutex.assert_held();
    ++here.counters.graphs;
  }});
  stream.queue.insert(stream.queue.end(), state->operations.begin(), state->operations.end());
  stream.queue.push_back({.run = [] {}});
}

void Stream::launch_kernel(const char* name, const void* kernel, const LaunchShape& shape, const void* params,
                           std::size_t params_bytes) {
  struct Thunk {
    void (*call)(void (*)(), const void*);
    void (*kernel)();
  };
  check_launch_shape(name, shape, device_->properties().shared_bytes_max);
  bool refused = false;
  {
    World& w = world();
    const MutexLock lock(w.mutex);
    refused = w.options.refused_kernel == name;
  }
  if (refused) {
    if (failure_.ok())
      failure_ = Status(StatusCode::kInternal, fmt::format("cuda:0 refused {}: a simulated fault", name));
    return;
  }
  const Thunk thunk = *static_cast<const Thunk*>(kernel);
  // As aligned as any params struct.
  const std::size_t words = (params_bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t);
  const std::shared_ptr<std::max_align_t[]> copy(new std::max_align_t[words]);
  std::memcpy(copy.get(), params, params_bytes);
  const auto run = [device = device_, name, thunk, shape, copy](const std::function<void()>& previous) {
    World& here = world();
    here.mutex.assert_held();
    if (!simulated::counts(*device)) {
      if (previous) previous();
      return;
    }
    ++here.counters.kernels;
    simulated::run_grid(name, shape, here.draw(), [&] { thunk.call(thunk.kernel, copy.get()); }, previous);
  };
  simulated::queue(simulated::stream_state(handle_),
                   {.kind = simulated::Operation::Kind::kKernel, .kernel = run});
}

void Stream::call(void (*function)(void*), std::shared_ptr<void> argument) {
  simulated::queue(*device_, simulated::stream_state(handle_),
                   [function, argument = std::move(argument)] { function(argument.get()); });
}

}  // namespace loci::cuda
